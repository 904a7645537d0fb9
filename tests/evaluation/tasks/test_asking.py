from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vtrim.chat.conversation import Origin
from vtrim.chat.render import Renderer
from vtrim.errors import InputError
from vtrim.evaluation.tasks.asking import Asker, TaskPrompt, asker, in_turn
from vtrim.evaluation.tasks.conversations import MT_BENCH
from vtrim.evaluation.tasks.earlier import EarlierReplies
from vtrim.evaluation.tasks.own_rows import JSONL
from vtrim.evaluation.tasks.sources import TaskData, find_data
from vtrim.evaluation.tasks.task import Question


@pytest.fixture(scope="module")
def renderer(inputs: Path) -> Renderer:
    from transformers import AutoTokenizer

    return Renderer(AutoTokenizer.from_pretrained(inputs / "tok_words"))


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., TaskData]:
    def write(*rows: dict[str, Any]) -> TaskData:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return find_data("mt-bench", path)

    return write


def turns(*texts: str, category: str = "") -> dict[str, Any]:
    return {"turns": list(texts), "category": category}


def asking(renderer: Renderer, limit: int = 9, context_length: int = 99) -> Asker:
    return asker(MT_BENCH, renderer, context_length, limit, None)


def question(group: str, line: int) -> Question:
    return Question(origin=Origin("f", line), messages=(), group=group)


def test_questions_come_from_each_part_in_turn() -> None:
    parts = [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("c", 6)]
    asked = [q.origin.line for q in in_turn([question(*part) for part in parts])]
    assert asked == [1, 4, 5, 2, 6, 3]
    assert list(in_turn([])) == []


def test_as_many_questions_are_asked_as_wanted_of_each_part_in_turn(
    renderer: Renderer, rows: Callable[..., TaskData]
) -> None:
    data = rows(
        turns("red", category="a"), turns("blue", category="a"), turns("green", category="b")
    )
    prompts = asking(renderer, limit=2).first_turns(data)
    assert [prompt.origin.line for prompt in prompts] == [1, 3]
    expected = renderer.prompt_ids([{"role": "user", "content": "red"}])
    assert list(prompts[0].ids) == expected
    assert (prompts[0].max_new_tokens, prompts[0].stop) == (1024, ())


def test_a_typed_length_stands_above_the_task_s_own(
    renderer: Renderer, rows: Callable[..., TaskData]
) -> None:
    (prompt,) = asker(MT_BENCH, renderer, 99, 1, 12).first_turns(rows(turns("red")))
    assert prompt.max_new_tokens is None


def test_later_turns_stand_behind_the_replies_before_them(
    renderer: Renderer, rows: Callable[..., TaskData]
) -> None:
    one = asking(renderer)
    first = one.first_turns(rows(turns("red", "blue", "green"), turns("gold")))
    said: list[tuple[int, int]] = []

    def reply(prompt: TaskPrompt) -> str:
        said.append((prompt.origin.line, prompt.turn))
        return f"cat {'dog ' * prompt.turn}".strip()

    prompts = one.with_later_turns(first, reply)
    assert [(p.origin.line, p.turn, p.is_last) for p in prompts] == [
        (1, 0, False), (1, 1, False), (1, 2, True), (2, 0, True),
    ]  # fmt: skip
    assert said == [(1, 0), (1, 1)]
    contents = [message["content"] for message in prompts[2].messages]
    assert contents == ["red", "cat", "blue", "cat dog", "green"]
    assert list(prompts[2].ids) == renderer.prompt_ids(prompts[2].messages)


def test_a_turn_too_long_for_the_context_ends_its_question_only_and_is_counted(
    renderer: Renderer, rows: Callable[..., TaskData]
) -> None:
    one = asking(renderer, context_length=20)
    first = one.first_turns(rows(turns("red", "blue " * 30, "green"), turns("gold", "red")))
    prompts = one.with_later_turns(first, lambda _prompt: "cat")
    assert [(p.origin.line, p.turn) for p in prompts] == [(1, 0), (2, 0), (2, 1)]
    assert one.source.skipped.counts == {"prompt longer than the context": 1}


def test_rows_without_a_question_are_counted_and_none_left_stops(
    renderer: Renderer, rows: Callable[..., TaskData]
) -> None:
    one = asking(renderer)
    assert len(one.first_turns(rows({"turns": []}, turns("red")))) == 1
    assert one.source.skipped.counts == {"no question": 1}
    with pytest.raises(InputError, match=r"--task mt-bench .*no prompt can be answered .*:1"):
        asking(renderer).first_turns(rows({"turns": []}))


def test_tools_of_a_row_reach_the_template(renderer: Renderer, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"question": "red", "tools": [{"name": "cat"}]}) + "\n")
    (prompt,) = asker(JSONL, renderer, 99, 1, None).first_turns(find_data("jsonl", path))
    assert prompt.question.tools == ({"name": "cat"},)


def prompt(*ids: int, stop: tuple[str, ...] = ()) -> TaskPrompt:
    asked = question("", 1)
    return TaskPrompt(
        ids=ids, origin=asked.origin, stop=stop, task=MT_BENCH, question=asked, messages=()
    )


def earlier(path: Path, **changed: Any) -> EarlierReplies:
    values: dict[str, Any] = {"path": path, "target": ("t", "sha256:1"), "longest": 9}
    return EarlierReplies(**{**values, **changed})


def test_a_reply_is_written_once_for_all_that_ask_the_same(tmp_path: Path) -> None:
    path, wrote = tmp_path / "earlier.json", []

    def write(asked: TaskPrompt) -> str:
        wrote.append(asked.ids)
        return f" reply {len(wrote)} Q: more"

    assert earlier(path).reply(prompt(1, 2, stop=("Q:",)), write) == "reply 1"
    assert earlier(path).reply(prompt(1, 2, stop=("Q:",)), write) == "reply 1"
    assert earlier(path).reply(prompt(1, 3, stop=("Q:",)), write) == "reply 2"
    other = earlier(path, target=("t", "sha256:2")).reply(prompt(1, 2, stop=("Q:",)), write)
    assert other == "reply 3"
    assert earlier(path, longest=8).reply(prompt(1, 2, stop=("Q:",)), write) == "reply 4"
    assert earlier(path).reply(prompt(1, 2), write) == "reply 5 Q: more"
    assert earlier(path).reply(prompt(1, 2), write) == "reply 5 Q: more"


def test_a_damaged_file_of_replies_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "earlier.json"
    earlier(path).reply(prompt(1), lambda _prompt: "red")
    path.write_text(path.read_text().replace('"red"', "[1]"))
    with pytest.raises(InputError, match=r"damaged: a reply is no text; delete it"):
        earlier(path).reply(prompt(1), lambda _prompt: "red")
    path.write_text("[]")
    with pytest.raises(InputError, match=r"a JSON object is expected"):
        earlier(path).reply(prompt(1), lambda _prompt: "red")
