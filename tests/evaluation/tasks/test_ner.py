"""NER: lists of entities against recorded ones. The counts in HAND are counted by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vtrim.chat.conversation import Origin, RowError
from vtrim.evaluation.tasks.ner import NER, entities_of
from vtrim.evaluation.tasks.task import Question, Score


def row(*entities: tuple[str, str], **more: str) -> dict[str, Any]:
    listed = json.dumps([{"type": kind, "text": text} for kind, text in entities])
    turns = [
        {"role": "user", "content": "List the named entities in this sentence as JSON.\n\n..."},
        {"role": "assistant", "content": listed},
    ]
    return {"messages": turns, **more}


TWO = row(("person", "Ada Lovelace"), ("city", "London"))
TWICE = row(("city", "Rome"), ("city", "Rome"))
NOTHING = row()
ADA = '{"type": "person", "text": "Ada Lovelace"}'
LONDON = '{"type": "city", "text": "London"}'
ROME = '{"type": "city", "text": "Rome"}'

# reply: right ones listed, wrong ones listed, recorded ones not listed
HAND: list[tuple[dict[str, Any], str, tuple[int, int, int]]] = [
    (TWO, f"[{ADA}, {LONDON}]", (2, 0, 0)),
    (TWO, f"[{LONDON}, {ADA}]", (2, 0, 0)),
    (TWO, f"[{ADA}]", (1, 0, 1)),
    (TWO, "[]", (0, 0, 2)),
    (TWO, f"[{ADA}, {LONDON}, {ROME}]", (2, 1, 0)),
    (TWO, f"[{ADA}, {ADA}]", (1, 1, 1)),  # one that is recorded once is right once
    (TWO, '[{"type": "city", "text": "Ada Lovelace"}]', (0, 1, 2)),  # another type
    (TWO, '[{"type": "person", "text": "Ada"}]', (0, 1, 2)),  # a part of the text
    (TWO, '[{"type": "person", "text": "ada lovelace"}]', (0, 1, 2)),  # case counts
    (TWO, '[{"type": "person", "text": " Ada  Lovelace "}]', (1, 0, 1)),  # spaces do not
    (TWO, f"Here they are: [{ADA}, {LONDON}]. Done.", (2, 0, 0)),
    (TWO, f"```json\n[\n {ADA},\n {LONDON}\n]\n```", (2, 0, 0)),
    (TWO, f"[1] is the list: [{ADA}]", (0, 1, 2)),  # the first list is what counts
    (TWO, f"[{ADA}, {LONDON}", (0, 0, 2)),  # cut
    (TWO, ADA, (0, 0, 2)),  # no list
    (TWO, "Ada Lovelace, London", (0, 0, 2)),
    (TWO, "", (0, 0, 2)),
    (TWO, '["Ada Lovelace", "London"]', (0, 2, 2)),  # texts without a type
    (TWO, f'[{ADA}, {{"type": "city"}}]', (1, 1, 1)),
    (TWICE, f"[{ROME}]", (1, 0, 1)),
    (TWICE, f"[{ROME}, {ROME}, {ROME}]", (2, 1, 0)),
    (NOTHING, "[]", (0, 0, 0)),
    (NOTHING, f"[{ROME}]", (0, 1, 0)),
    (NOTHING, "There are none.", (0, 0, 0)),
]


def questions(*rows: Any) -> list[Question | RowError]:
    return [found for _, found in NER.questions([(Origin("n.jsonl", 1), one) for one in rows])]


def scored(given: Any, reply: str) -> Score:
    (question,) = questions(given)
    assert isinstance(question, Question)
    score = NER.score(question, reply)
    assert score is not None
    return score


@pytest.mark.parametrize(("given", "reply", "counts"), HAND)
def test_entities_are_counted_by_type_and_text(
    given: Any, reply: str, counts: tuple[int, int, int]
) -> None:
    score = scored(given, reply)
    assert tuple(score.counts[key] for key in ("found", "wrong", "missed")) == counts


def test_f1_is_over_all_entities_and_not_the_mean_of_replies() -> None:
    scores = [scored(TWO, f"[{ADA}, {LONDON}]"), scored(TWICE, f"[{ADA}]"), scored(NOTHING, "[]")]
    assert [score.value for score in scores] == [1.0, 0.0, 1.0]
    assert NER.total(scores) == pytest.approx(2 * 2 / (2 * 2 + 1 + 2))
    assert NER.total([]) is None


def test_where_nothing_is_recorded_an_empty_list_is_right_and_words_are_not() -> None:
    assert scored(NOTHING, "[]").value == 1.0
    assert scored(NOTHING, "There are none.").value == 0.0
    assert scored(NOTHING, "There are none.").counts["unreadable_replies"] == 1.0


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (row(("city", "Rome"), split="conll_train"), "of a training split"),
        (row(("city", "Rome"), split="dev"), "of a training split"),
        ({"text": "Rome"}, "no question"),
        (["Rome"], "no question"),
        ({"messages": [{"role": "user", "content": "Rome"}]}, "no answer"),
        ({"messages": [*TWO["messages"][:1], {"role": "assistant", "content": "?"}]}, "no answer"),
    ],
)
def test_a_row_that_asks_nothing_says_so(given: Any, reason: str) -> None:
    (found,) = questions(given)
    assert isinstance(found, RowError)
    assert found.reason == reason


def test_a_row_of_a_test_split_is_asked() -> None:
    (found,) = questions({**row(("city", "Rome"), split="ai_test"), "source": "crossner"})
    assert isinstance(found, Question)
    assert found.messages == tuple(TWO["messages"][:1])
    assert found.group == "crossner"


def test_a_list_of_great_depth_is_no_list() -> None:
    assert entities_of("[" * 100_000) is None
