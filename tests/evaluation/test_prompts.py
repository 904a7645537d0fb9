"""Prompts from files and from a run's held-out conversations."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from vtrim.artifacts import Run, fingerprint_file
from vtrim.chat.conversation import Origin, conversation_of, is_heldout
from vtrim.chat.render import Renderer
from vtrim.errors import InputError, MismatchError
from vtrim.evaluation.prompts import Prompt, PromptSource, batches, before_last_reply
from vtrim.models.hub import load_tokenizer


@pytest.fixture(scope="module")
def renderer(inputs: Path) -> Renderer:
    return Renderer(load_tokenizer(str(inputs / "target_chain")))


def source(renderer: Renderer, **changes: Any) -> PromptSource:
    values: dict[str, Any] = {"renderer": renderer, "context_length": 128, "limit": 20}
    return PromptSource(**(values | changes))


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def words(renderer: Renderer, ids: tuple[int, ...]) -> str:
    return " ".join(renderer.tokenizer.convert_ids_to_tokens(list(ids)))


def test_a_raw_prompt_is_encoded_as_it_is(renderer: Renderer, inputs: Path) -> None:
    prompts = source(renderer).from_file(inputs / "g20_prompts.jsonl")
    assert [words(renderer, p.ids) for p in prompts] == ["the cat", "one", "yes", "no", "seven"]
    assert [p.origin.line for p in prompts] == [1, 2, 3, 4, 5]


USER = {"role": "user", "content": "the cat"}
REPLY = {"role": "assistant", "content": "dog"}
OPEN = "<|turn|> user the cat <|done|> <|turn|> assistant"


def test_a_conversation_is_cut_before_the_reply_that_ends_it(
    renderer: Renderer, tmp_path: Path
) -> None:
    turns = [{"from": "human", "value": "the cat"}, {"from": "gpt", "value": "dog"}]
    file = write(
        tmp_path / "chat.jsonl",
        {"messages": [USER]},
        {"messages": [USER, REPLY]},
        {"conversations": turns},
        {"messages": [USER, REPLY, USER]},
        {"messages": [USER, REPLY, USER, REPLY]},
    )
    prompts = [words(renderer, p.ids) for p in source(renderer).from_file(file)]
    again = f"<|turn|> user the cat <|done|> <|turn|> assistant dog <|done|> {OPEN}"
    assert prompts == [OPEN, OPEN, OPEN, again, again]


def test_recorded_ids_without_messages_are_cut_before_their_last_reply(
    renderer: Renderer, tmp_path: Path
) -> None:
    row = {"input_ids": [1, 2, 3, 4, 5, 6, 7], "loss_mask": [0, 1, 1, 0, 1, 1, 0]}
    (prompt,) = source(renderer).from_file(write(tmp_path / "r.jsonl", row))
    assert prompt.ids == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("roles", "kept"), [("", 0), ("u", 1), ("ua", 1), ("uau", 3), ("a", 0), ("uat", 3)]
)
def test_only_a_reply_that_ends_the_rows_is_left_out(roles: str, kept: int) -> None:
    names = {"u": "user", "a": "assistant", "t": "tool"}
    messages = [{"role": names[r], "content": "x"} for r in roles]
    assert len(before_last_reply(messages)) == kept


def test_g23_prompts_that_cannot_be_answered_are_counted_and_the_others_kept(
    renderer: Renderer, inputs: Path
) -> None:
    reader = source(renderer)
    (prompt,) = reader.from_file(inputs / "g23_long_prompt.jsonl")
    assert words(renderer, prompt.ids) == "red blue"
    assert reader.skipped.counts == {"prompt longer than the context": 1, "empty prompt": 1}
    assert "g23_long_prompt.jsonl:2: 160 tokens for 128 positions" in reader.skipped.lines()[1]


def test_rows_without_a_prompt_are_counted_by_reason(renderer: Renderer, tmp_path: Path) -> None:
    file = write(
        tmp_path / "odd.jsonl",
        {"prompt": "the \ud800"},
        {"title": "the cat"},
        {"messages": [{"role": "narrator", "content": "x"}]},
        {"messages": []},
        {"messages": [REPLY]},
        {"prompt": "   "},
        {"prompt": ["the", "cat"]},
        {"prompt": "one"},
    )
    reader = source(renderer)
    (prompt,) = reader.from_file(file)
    assert words(renderer, prompt.ids) == "one"
    assert reader.skipped.counts == {
        "unreadable content": 1,
        "no messages": 2,
        "unknown role": 1,
        "empty prompt": 3,
    }


def test_a_file_with_no_usable_prompt_is_refused_with_the_reasons(
    renderer: Renderer, tmp_path: Path
) -> None:
    file = write(tmp_path / "none.jsonl", {"prompt": ""}, {"prompt": "the " * 128})
    with pytest.raises(InputError, match="no prompt can be answered") as caught:
        source(renderer).from_file(file)
    assert "empty prompt: 1" in str(caught.value)


def test_an_empty_and_a_cut_file_are_refused(renderer: Renderer, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(InputError, match="no rows"):
        source(renderer).from_file(empty)
    cut = tmp_path / "cut.jsonl"
    cut.write_text('{"prompt": "one"}\n{"prompt": "tw', encoding="utf-8")
    with pytest.raises(InputError, match=r"cut\.jsonl:2.*: repair the row\.$"):
        source(renderer).from_file(cut)  # eval has no --skip-bad-rows


@pytest.mark.parametrize(
    "row",
    [
        {"question": "the cat"},
        {"question": "the cat", "answer": "dog"},
        {"instruction": "the", "input": "cat"},
        {"instruction": "the cat", "input": ""},
        {"question_id": 81, "turns": ["the cat", "one"]},
    ],
)
def test_a_question_an_instruction_or_the_first_turn_is_the_user_s_text(
    row: dict[str, Any], renderer: Renderer, tmp_path: Path
) -> None:
    (prompt,) = source(renderer).from_file(write(tmp_path / "p.jsonl", row))
    assert words(renderer, prompt.ids) == OPEN


@pytest.mark.parametrize(
    "row", [{"title": "the cat"}, {"turns": []}, {"question": 7}, {"text": None, "query": "one"}]
)
def test_rows_of_no_known_form_are_told_what_eval_reads(
    row: dict[str, Any], renderer: Renderer, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="`question`") as caught:
        source(renderer).from_file(write(tmp_path / "p.jsonl", row))
    assert "--map" not in str(caught.value)


def test_the_limit_stops_the_reading(renderer: Renderer, tmp_path: Path) -> None:
    rows = [{"prompt": "one"}, {"prompt": "two"}, {"prompt": ""}]
    reader = source(renderer, limit=2)
    assert len(reader.from_file(write(tmp_path / "p.jsonl", *rows))) == 2
    assert reader.skipped.total == 0


NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def run_on(folder: Path, rows: list[Any]) -> Run:
    """A run whose coverage was counted on these rows."""
    data = write(folder / "data.jsonl", *rows)
    run = Run(folder / "run")
    file = {"path": str(data), "bytes": data.stat().st_size, "fingerprint": fingerprint_file(data)}
    run.update(data={"files": [file], "skip_bad_rows": False, "rows_used": len(rows)})
    run.record("coverage", {"rows_used": len(rows)})
    return run


def many_rows(count: int) -> list[Any]:
    dice = np.random.default_rng(0)
    return [
        {"messages": [{"role": "user", "content": " ".join(dice.choice(NUMBERS, 6))}, REPLY]}
        for _ in range(count)
    ]


def test_default_prompts_are_held_out_distinct_and_independent_of_the_order_of_rows(
    renderer: Renderer, tmp_path: Path
) -> None:
    rows = many_rows(300)
    held = [r for r in rows if is_heldout(conversation_of(r, Origin("x", 1)))]
    assert len(held) > 5
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = source(renderer, limit=5).heldout(run_on(tmp_path / "a", rows + held))
    second = source(renderer, limit=5).heldout(run_on(tmp_path / "b", rows[::-1]))
    assert [p.ids for p in first] == [p.ids for p in second]
    assert len({p.ids for p in first}) == 5
    texts = {r["messages"][0]["content"] for r in held}
    assert {words(renderer, p.ids).split(" <|done|>")[0].split("user ")[1] for p in first} <= texts


def test_changed_data_is_refused(renderer: Renderer, tmp_path: Path) -> None:
    run = run_on(tmp_path, many_rows(50))
    write(tmp_path / "data.jsonl", *many_rows(51))
    with pytest.raises(MismatchError, match=r"data\.jsonl"):
        source(renderer).heldout(run)


def test_a_run_without_held_out_rows_says_so(renderer: Renderer, tmp_path: Path) -> None:
    row = next(r for r in many_rows(50) if not is_heldout(conversation_of(r, Origin("x", 1))))
    with pytest.raises(InputError, match="held-out conversations"):
        source(renderer).heldout(run_on(tmp_path, [row]))


def test_a_text_that_is_already_rendered_is_cut_before_its_last_reply(
    renderer: Renderer, tmp_path: Path
) -> None:
    asked = "<|turn|>user\nthe cat<|done|>\n"
    reply = f"{asked}<|turn|>assistant\ndog<|done|>\n"
    file = write(tmp_path / "text.jsonl", {"text": reply}, {"text": reply + reply}, {"text": asked})
    reader = source(renderer)
    assert [words(renderer, p.ids) for p in reader.from_file(file)] == [
        OPEN,
        f"{OPEN} dog <|done|> {OPEN}",
    ]
    assert reader.skipped.counts == {"no reply header in text": 1}


def test_columns_of_a_table_that_json_cannot_hold_cost_no_prompt(
    renderer: Renderer, tmp_path: Path
) -> None:
    path = tmp_path / "prompts.parquet"
    rows = [
        {"prompt": "the cat", "image": b"x", "day": datetime.date(2020, 1, 2)},
        {"prompt": "one", "image": None, "day": None},
    ]
    parquet.write_table(pa.Table.from_pylist(rows), path)
    prompts = source(renderer).from_file(path)
    assert [words(renderer, p.ids) for p in prompts] == ["the cat", "one"]


def test_neighbours_with_the_same_limits_are_decoded_together() -> None:
    limits = [(None, ()), (None, ()), (None, ()), (9, ()), (9, ("Q:",)), (9, ("Q:",)), (None, ())]
    prompts = [
        Prompt((1,), Origin("f", line), max_new_tokens=most, stop=stop)
        for line, (most, stop) in enumerate(limits)
    ]
    found = [(start, [p.origin.line for p in batch]) for start, batch in batches(prompts, 2)]
    assert found == [(0, [0, 1]), (2, [2]), (3, [3]), (4, [4, 5]), (6, [6])]
    assert list(batches([], 2)) == []
