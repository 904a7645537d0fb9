from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vtrim.chat.conversation import Origin, conversation_of
from vtrim.chat.encode import fast_backend
from vtrim.chat.read import read_conversations
from vtrim.chat.render import Renderer
from vtrim.chat.skips import SkipLog
from vtrim.errors import InputError

PIECES = [
    "yes", "no ", " maybe", "\n", "\n\n", " ", "  ", "\t", "'s", "I'm", "12,345", ".", "?!", "é",
    "漢", "🙂", "\u00a0", "\u2028", "<|im_end|>", "<|im_start|>assistant\n", "<think>",
    "</think>\n\n", "<|",
    "assistant: ", "{\"a\": [1]}",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
TALKS = st.tuples(
    st.booleans(), st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3), st.booleans()
)


def messages_of(made: tuple[bool, list[tuple[str, str]], bool]) -> list[dict[str, str]]:
    system, rounds, question = made
    messages = [{"role": "system", "content": "be kind"}] if system else []
    for asked, answered in rounds:
        messages.append({"role": "user", "content": asked})
        messages.append({"role": "assistant", "content": answered})
    if question:
        messages.append({"role": "user", "content": "and?"})
    return messages


def reply_ids(tokenizer: Any, messages: list[dict[str, str]], **options: Any) -> list[int]:
    conversation = conversation_of({"messages": messages}, Origin("made", 1))
    samples = Renderer(tokenizer, **options).samples(conversation)
    return [token for sample in samples for token in sample.ids[sample.mask].tolist()]


@pytest.mark.parametrize("template", ["chatml", "trimmed", "marked", "returns", "spaced", "bare"])
@pytest.mark.parametrize("split", ["llama3", "gpt2", "o200k"])
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(made=TALKS)
def test_reply_ids_equal_those_of_the_plain_definition(
    bpe: Callable, plain_reply_ids: Callable, split: str, template: str, made: Any
) -> None:
    tokenizer = bpe(split, template)
    messages = messages_of(made)
    end = {"returns": "<|return|>", "bare": None}.get(template, "<|im_end|>")
    expected = plain_reply_ids(tokenizer, messages, end)
    if template == "bare":  # there the definition itself has no end: compare the beginnings
        found = reply_ids(tokenizer, messages[:2])
        whole = plain_reply_ids(tokenizer, messages[:2], None)
        assert found == whole[: len(found)]
        return
    assert reply_ids(tokenizer, messages) == expected


def test_a_token_that_reaches_from_the_prompt_into_the_reply_is_counted_apart(
    bpe: Callable, talk: Callable
) -> None:
    tokenizer = bpe("llama3", "chatml")
    renderer = Renderer(tokenizer)
    (sample,) = renderer.samples(talk(("user", "q"), ("assistant", "\nyes")))
    assert tokenizer.tokenize("assistant\n\nyes")[-2:] == ["ĊĊ", "yes"]
    assert tokenizer.decode(sample.ids[sample.mask]) == "yes<|im_end|>"
    assert renderer.straddling == 1


def test_a_space_that_offsets_hide_does_not_make_a_reply_token(
    bpe: Callable, talk: Callable
) -> None:
    tokenizer = bpe("llama3", "spaced")  # "assistant: " + "yes" is encoded as ":", " yes"
    renderer = Renderer(tokenizer)
    (sample,) = renderer.samples(talk(("user", "q"), ("assistant", "yes no")))
    assert tokenizer.decode(sample.ids[sample.mask]) == " no<|im_end|>"
    assert renderer.straddling == 1


def test_ids_are_those_of_transformers(bpe: Callable, talk: Callable) -> None:
    tokenizer = bpe("llama3", "chatml")
    row = talk(("system", "s"), ("user", "<|im_end|> q"), ("assistant", "a é 漢"), ("user", "x"))
    (sample,) = Renderer(tokenizer).samples(row)
    expected = tokenizer.apply_chat_template(list(row.messages), return_dict=False)
    assert sample.ids.tolist() == expected
    assert sample.ids.dtype == np.int64
    assert sample.mask.dtype == np.bool_


def test_recorded_ids_are_used_as_they_are(bpe: Callable) -> None:
    row = {"input_ids": [9, 8, 7, 6], "loss_mask": [0, 1, 0, 1], "messages": []}
    (sample,) = Renderer(bpe("llama3", "chatml")).samples(conversation_of(row, Origin("f", 1)))
    assert sample.ids.tolist() == [9, 8, 7, 6]
    assert sample.mask.tolist() == [False, True, False, True]


def test_recorded_ids_beyond_the_tokenizer_stop_the_row(bpe: Callable) -> None:
    renderer = Renderer(bpe("llama3", "chatml"))
    row = {"input_ids": [10**6], "loss_mask": [1]}
    assert renderer.samples(conversation_of(row, Origin("f", 3))) == []
    assert renderer.skipped.counts == {"bad recorded ids": 1}


def test_the_length_limit_cuts_on_the_right(bpe: Callable, talk: Callable) -> None:
    tokenizer = bpe("llama3", "chatml")
    row = talk(("user", "q"), ("assistant", "one two three four five six"))
    (whole,) = Renderer(tokenizer).samples(row)
    size = int(np.flatnonzero(whole.mask)[0]) + 2
    (cut,) = Renderer(tokenizer, max_length=size).samples(row)
    assert cut.ids.tolist() == whole.ids[:size].tolist()
    assert cut.mask.sum() == 2


def test_a_row_with_no_reply_left_is_reported(bpe: Callable, talk: Callable) -> None:
    renderer = Renderer(bpe("llama3", "chatml"), max_length=3)
    assert renderer.samples(talk(("user", "q"), ("assistant", "yes"), line=7)) == []
    assert renderer.skipped.counts == {"reply beyond max length": 1}
    assert "made.jsonl:7" in renderer.skipped.lines()[0]


def test_replies_cut_from_a_row_that_is_still_used_are_counted(
    bpe: Callable, talk: Callable
) -> None:
    tokenizer = bpe("llama3", "returns")  # one sample a reply
    row = talk(("user", "q"), ("assistant", "one"), ("user", "r " * 40), ("assistant", "two"))
    renderer = Renderer(tokenizer, max_length=30)
    assert len(renderer.samples(row)) == 1
    assert (renderer.cut_replies, renderer.skipped.total) == (1, 0)


@pytest.mark.parametrize(
    ("turns", "reason"),
    [((), "no reply"), ((("user", "q"),), "no reply"), ((("assistant", "a"),), "template refusal")],
)
def test_rows_that_give_no_sample_say_why(
    bpe: Callable, talk: Callable, turns: tuple[tuple[str, str], ...], reason: str
) -> None:
    renderer = Renderer(bpe("llama3", "alternating"))
    assert renderer.samples(talk(*turns)) == []
    assert renderer.skipped.counts == {reason: 1}


def test_an_empty_reply_still_counts_its_end_of_turn(bpe: Callable, talk: Callable) -> None:
    tokenizer = bpe("llama3", "chatml")
    (sample,) = Renderer(tokenizer).samples(talk(("user", "q"), ("assistant", "")))
    assert tokenizer.decode(sample.ids[sample.mask]) == "<|im_end|>"


def test_a_prompt_ends_where_the_reply_will_begin(bpe: Callable) -> None:
    tokenizer = bpe("llama3", "chatml")
    ids = Renderer(tokenizer).prompt_ids([{"role": "user", "content": "q"}])
    assert tokenizer.decode(ids) == "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"


def test_a_raw_text_is_encoded_as_the_tokenizer_does_by_itself(bpe: Callable) -> None:
    tokenizer = bpe("llama3", "chatml")
    renderer = Renderer(tokenizer)
    assert renderer.encode_text("the cat") == tokenizer("the cat")["input_ids"]
    assert renderer.encode_text("") == []


def test_a_tokenizer_without_character_offsets_is_refused() -> None:
    class Slow:
        name_or_path = "some/model"
        backend_tokenizer = None

    with pytest.raises(InputError, match="no fast `tokenizers` backend"):
        fast_backend(Slow())


@pytest.mark.parametrize(
    ("name", "tokenizer", "rows", "total", "done"),
    [
        ("g04_order.jsonl", "tok_words", 4, 13, 6),
        ("g04_order.jsonl", "tok_words_nogen", 4, 13, 6),
        ("g05_parts.jsonl", "tok_words", 4, 9, 4),
        ("g06_no_generation_marks.jsonl", "tok_words_nogen", 2, 8, 3),
        ("g07_think_two_turns.jsonl", "tok_words_think", 3, 24, 4),
        ("g08_long_rows.jsonl", "tok_words", 3, 13, 3),
        ("g09_markers_in_user.jsonl", "tok_words", 2, 5, 2),
        ("g09_markers_in_user.jsonl", "tok_words_nogen", 2, 5, 2),
        ("g10_prefix_space.jsonl", "tok_meta", 3, 8, 3),
        ("g11_ties.jsonl", "tok_words", 2, 100, 2),
        ("g11_bulk.jsonl", "tok_words", 300, 8751, 626),
        ("g24_brackets.jsonl", "tok_words", 2, 7, 2),
    ],
)
@pytest.mark.parametrize("full", [False, True])
def test_shared_files_have_their_known_counts(
    inputs: Path,
    toy: Callable,
    tally: Callable,
    name: str,
    tokenizer: str,
    rows: int,
    total: int,
    done: int,
    full: bool,
) -> None:
    found = tally(inputs / name, toy(tokenizer), full=full)
    assert (found.feed.rows_used, found.total, found.tokens["<|done|>"]) == (rows, total, done)


@pytest.mark.parametrize(
    ("name", "tokenizer", "expected"),
    [
        ("g04_order.jsonl", "tok_words", {"yes": 1, "five": 1, "six": 0}),
        ("g05_parts.jsonl", "tok_words", {"gold": 1, "grey": 1, "<unk>": 0}),
        (
            "g06_no_generation_marks.jsonl",
            "tok_words_nogen",
            {"red": 3, "blue": 1, "gold": 1, "cat": 0, "dog": 0, "owl": 0},
        ),
        ("g07_think_two_turns.jsonl", "tok_words_think", {"one": 1, "six": 2, "<think>": 4}),
        (
            "g09_markers_in_user.jsonl",
            "tok_words",
            {"blue": 1, "green": 1, "grey": 1, "gold": 0},
        ),
        (
            "g10_prefix_space.jsonl",
            "tok_meta",
            {"yes": 2, "▁yes": 1, "no": 1, "▁no": 1},
        ),
        ("g24_brackets.jsonl", "tok_words", {"<unk>": 3, "no": 1, "yes": 1}),
    ],
)
def test_shared_files_have_their_known_words(
    inputs: Path,
    toy: Callable,
    tally: Callable,
    name: str,
    tokenizer: str,
    expected: dict[str, int],
) -> None:
    found = tally(inputs / name, toy(tokenizer)).tokens
    assert {word: found[word] for word in expected} == expected


def test_the_shared_long_rows_keep_what_fits_and_report_the_row_that_has_nothing(
    inputs: Path, toy: Callable, tally: Callable
) -> None:
    found = tally(inputs / "g08_long_rows.jsonl", toy("tok_words"), max_length=12)
    assert (found.total, found.tokens["<|done|>"], found.feed.rows_used) == (6, 1, 2)
    assert found.skipped.counts == {"reply beyond max length": 1}
    assert "g08_long_rows.jsonl:2" in found.skipped.lines()[0]


@pytest.mark.slow
def test_one_row_of_a_million_words_has_its_known_counts(
    inputs: Path, toy: Callable, tally: Callable, tmp_path: Path
) -> None:
    path = tmp_path / "huge.jsonl"
    made = subprocess.run(
        [sys.executable, inputs / "g08_make_huge.py"], capture_output=True, check=True
    )
    path.write_bytes(made.stdout)
    for full in (False, True):
        found = tally(path, toy("tok_words"), full=full)
        assert (found.total, found.tokens["red"]) == (1_000_005, 500_000)
    cut = tally(path, toy("tok_words"), max_length=4096)
    assert (cut.total, cut.tokens["<|done|>"]) == (4094, 2)
    assert (cut.tokens["red"], cut.tokens["blue"]) == (2045, 2045)


def test_real_conversations_give_the_ids_of_the_plain_definition(
    data: Path, plain_reply_ids: Callable
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(data / "model" / "stories260k")
    for name in ("chat", "function_calling", "ner"):
        rows = read_conversations([data / f"{name}_messages.jsonl"], skipped=SkipLog())
        for row in islice((row for row in rows if row.tools is None), 0, 2400, 80):
            found = reply_ids(tokenizer, [dict(message) for message in row.messages])
            assert found == plain_reply_ids(tokenizer, list(row.messages), "</s>"), row.origin
