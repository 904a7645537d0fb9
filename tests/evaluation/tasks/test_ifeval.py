"""IFEval through lm-evaluation-harness's rules. The replies in HAND are checked by hand."""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest

from vtrim.chat.conversation import Origin, RowError
from vtrim.errors import InputError
from vtrim.evaluation.tasks import ifeval
from vtrim.evaluation.tasks.ifeval import IFEVAL
from vtrim.evaluation.tasks.task import Question, Score


def row(**rules: dict[str, Any]) -> dict[str, Any]:
    """A row of these rules, ``group__rule`` each with its details."""
    names = [name.replace("__", ":") for name in rules]
    return {
        "key": 1,
        "prompt": "Tell me of the sea.",
        "instruction_id_list": names,
        "kwargs": list(rules.values()),
    }


COMMA = row(punctuation__no_comma={})
LOWER = row(change_case__english_lowercase={})
UPPER = row(change_case__english_capital={})
WORDS = row(length_constraints__number_words={"relation": "at least", "num_words": 5})
FEW = row(length_constraints__number_words={"relation": "less than", "num_words": 4})
KEYWORDS = row(keywords__existence={"keywords": ["wave", "salt"]})
FORBIDDEN = row(keywords__forbidden_words={"forbidden_words": ["fish"]})
LETTER = row(keywords__letter_frequency={"letter": "e", "let_relation": "at least",
                                         "let_frequency": 3})  # fmt: skip
BULLETS = row(detectable_format__number_bullet_lists={"num_bullets": 2})
TITLE = row(detectable_format__title={})
JSON = row(detectable_format__json_format={})
QUOTED = row(startend__quotation={})
ENDS = row(startend__end_checker={"end_phrase": "That is all."})
MARKS = row(detectable_content__number_placeholders={"num_placeholders": 2})
GERMAN = row(language__response_language={"language": "de"})
BOTH = row(punctuation__no_comma={}, startend__quotation={})

# reply: strictly right, loosely right
HAND: list[tuple[dict[str, Any], str, tuple[bool, bool]]] = [
    (COMMA, "The sea is wide.", (True, True)),
    (COMMA, "The sea is wide, and deep.", (False, False)),
    (COMMA, "Sure, here it is:\nThe sea is wide.", (False, True)),  # without its first line
    (COMMA, "", (False, False)),
    (LOWER, "the sea is wide and deep and blue.", (True, True)),
    (LOWER, "The sea is wide and deep and blue.", (False, False)),
    (UPPER, "THE SEA IS WIDE AND DEEP AND BLUE.", (True, True)),
    (UPPER, "THE SEA is wide and deep and blue.", (False, False)),
    (WORDS, "The sea is very wide.", (True, True)),
    (WORDS, "The sea is wide.", (False, False)),
    (FEW, "Wide it is.", (True, True)),
    (FEW, "The sea is wide.", (False, False)),
    (FEW, "So here you are:\nWide.", (False, True)),
    (KEYWORDS, "Each wave tastes of Salt.", (True, True)),  # case does not count
    (KEYWORDS, "Each wave is new.", (False, False)),
    (FORBIDDEN, "The sea is fished empty.", (True, True)),  # only the whole word counts
    (FORBIDDEN, "The sea has one fish.", (False, False)),
    (LETTER, "The sea, deep.", (True, True)),
    (LETTER, "The sea.", (False, False)),
    (BULLETS, "* wide\n* deep", (True, True)),
    (BULLETS, "- wide\n- deep", (True, True)),
    (BULLETS, "* wide\n* deep\n* blue", (False, True)),  # without its last line
    (BULLETS, "1. wide\n2. deep", (False, False)),
    (TITLE, "<<The sea>>\nIt is wide.", (True, True)),
    (TITLE, "<The sea>\nIt is wide.", (False, False)),
    (JSON, '{"sea": "wide"}', (True, True)),
    (JSON, '```json\n{"sea": "wide"}\n```', (True, True)),
    (JSON, "{sea: wide}", (False, False)),
    (QUOTED, '"The sea is wide."', (True, True)),
    (QUOTED, 'The sea is "wide".', (False, False)),
    (QUOTED, '*"The sea is wide."*', (False, True)),  # without the asterisks
    (ENDS, "It is wide. That is all.", (True, True)),
    (ENDS, "That is all. It is wide.", (False, False)),
    (MARKS, "To [name] at [place]: it is wide.", (True, True)),
    (MARKS, "To [name]: it is wide.", (False, False)),
    (GERMAN, "Das Meer ist weit und tief und sehr blau.", (True, True)),
    (GERMAN, "The sea is wide and deep and very blue.", (False, False)),
    (BOTH, '"The sea is wide."', (True, True)),
    (BOTH, "The sea is wide.", (False, False)),
]


@pytest.fixture(scope="module")
def library() -> None:
    """The rules, imported; the library's own warnings are not ours."""
    for name in ("lm_eval", "nltk", "langdetect", "immutabledict"):
        pytest.importorskip(name, reason=f"{name} is not installed (pip install 'vtrim[tasks]')")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ifeval._published()


def asked(given: Any) -> Question | RowError:
    ((_, found),) = IFEVAL.questions([(Origin("ifeval.jsonl", 1), given)])
    return found


def scored(given: Any, reply: str) -> Score:
    question = asked(given)
    assert isinstance(question, Question)
    score = IFEVAL.score(question, reply)
    assert score is not None
    return score


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("given", "reply", "right"), HAND)
def test_a_reply_is_right_where_it_keeps_every_rule(
    given: Any, reply: str, right: tuple[bool, bool]
) -> None:
    score = scored(given, reply)
    assert (score.value, score.parts["prompt_loose"]) == tuple(map(float, right))


@pytest.mark.usefixtures("library")
def test_kept_rules_are_counted_one_by_one() -> None:
    score = scored(BOTH, "Yes, so:\nThe sea is wide.")
    assert score.counts == {"rules": 2.0, "rules_kept_strict": 0.0, "rules_kept_loose": 1.0}


@pytest.mark.usefixtures("library")
def test_the_language_of_a_short_text_is_told_the_same_each_time() -> None:
    assert len({scored(GERMAN, "Das ist so nett.").value for _ in range(20)}) == 1


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("given", "detail"),
    [
        ({"prompt": "Hello"}, "instruction_id_list"),
        ({**COMMA, "kwargs": []}, "kwargs"),
        ({**COMMA, "kwargs": ["x"]}, "kwargs"),
        ({**COMMA, "instruction_id_list": ["punctuation:no_dots"]}, "punctuation:no_dots"),
        ({**COMMA, "prompt": ""}, "prompt"),
    ],
)
def test_a_row_that_cannot_be_scored_says_why(given: Any, detail: str) -> None:
    found = asked(given)
    assert isinstance(found, RowError)
    assert detail in found.detail


@pytest.mark.usefixtures("library")
def test_a_rule_on_sentences_needs_a_splitter(monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = {"relation": "at least", "num_sentences": 2}
    given = row(length_constraints__number_sentences=sentences)
    monkeypatch.setattr(ifeval, "_has_splitter", lambda: False)
    found = asked(given)
    assert isinstance(found, RowError)
    assert "punkt_tab" in found.detail
    monkeypatch.setattr(ifeval, "_has_splitter", lambda: True)
    assert isinstance(asked(given), Question)


@pytest.mark.usefixtures("library")
def test_importing_the_rules_leaves_the_environment_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    ifeval._published.cache_clear()
    ifeval._published()
    assert os.environ["LOCAL_RANK"] == "3"
    monkeypatch.delenv("LOCAL_RANK")
    ifeval._published.cache_clear()
    ifeval._published()
    assert "LOCAL_RANK" not in os.environ


def test_without_the_library_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ifeval._published.cache_clear()
    monkeypatch.setattr(ifeval, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"lm_eval is not installed.*vtrim\[tasks\]"):
        asked(COMMA)
    ifeval._published.cache_clear()
