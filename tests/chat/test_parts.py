from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from vtrim.chat.conversation import Origin, RowError, conversation_of
from vtrim.chat.render import Renderer
from vtrim.chat.turns import LEFT_OUT

PLACE = Origin("made.jsonl", 1)


def messages(*turns: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    return conversation_of({"messages": list(turns)}, PLACE).messages


def reply(*parts: Any, **keys: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(parts), **keys}


@pytest.mark.parametrize(
    "part",
    [
        {"type": "thinking", "thinking": "hm"},
        {"type": "reasoning", "text": "hm"},
        {"type": "reasoning", "reasoning": "hm"},
    ],
)
def test_reasoning_parts_of_a_reply_stand_beside_its_text(part: dict[str, str]) -> None:
    (found,) = messages(reply(part, {"type": "text", "text": "hi"}))
    assert found == {"role": "assistant", "content": "hi", "reasoning_content": "hm"}
    (found,) = messages(reply(part, "hi", reasoning_content=""))
    assert found["reasoning_content"] == "hm"


def test_a_text_part_may_hold_its_text_under_content() -> None:
    (found,) = messages(reply({"type": "text", "content": "a"}, {"type": "text", "text": "b"}))
    assert found["content"] == "ab"


def test_tool_use_parts_are_tool_calls_and_their_results_tool_turns() -> None:
    use = {"type": "tool_use", "id": "t", "name": "weather", "input": {"city": "Paris"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "sunny"}
    asked, told, said = messages(
        reply({"type": "text", "text": "let me see"}, use),
        {"role": "user", "content": [result, {"type": "text", "text": "and?"}]},
    )
    assert asked["content"] == "let me see"
    function = {"name": "weather", "arguments": {"city": "Paris"}}
    assert asked["tool_calls"] == [{"type": "function", "id": "t", "function": function}]
    assert told == {"role": "tool", "content": "sunny", "tool_call_id": "t"}
    assert said == {"role": "user", "content": "and?"}
    several = {"role": "user", "content": [result, {**result, "content": [{"text": "wet"}]}]}
    assert [turn["content"] for turn in messages(several)] == ["sunny", "wet"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "server_tool_use", "name": "search", "input": {}},
        {"type": "tool_result", "content": "sunny"},
        {"type": "text", "text": {"value": "nested"}},
        {"speech": "hi"},
    ],
)
def test_a_reply_is_refused_rather_than_learned_without_a_part(part: dict[str, Any]) -> None:
    with pytest.raises(RowError, match="unreadable content: a reply with a part of type"):
        messages(reply({"type": "text", "text": "hi"}, part))


def test_a_column_of_plain_texts_is_refused_with_parts_of_another_kind() -> None:
    row = {"instruction": "q", "output": [{"type": "thinking", "thinking": "hm"}]}
    with pytest.raises(RowError, match="parts that are no text"):
        conversation_of(row, PLACE)


def test_images_are_left_out_and_counted(bpe: Callable) -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    asked = {"role": "user", "content": [{"type": "text", "text": "what?"}, image, {"odd": 1}]}
    row = conversation_of({"messages": [asked, reply("a cat")]}, PLACE)
    assert row.messages[0] == {"role": "user", "content": "what?", LEFT_OUT: 2}
    renderer = Renderer(bpe("llama3", "chatml"))
    (sample,) = renderer.samples(row)
    assert renderer.tokenizer.decode(sample.ids[sample.mask]) == "a cat<|im_end|>"
    assert (renderer.parts_left_out, renderer.empty_replies) == (2, 0)
    renderer.samples(conversation_of({"messages": [asked, reply(image)]}, PLACE))
    assert (renderer.parts_left_out, renderer.empty_replies) == (5, 1)


@pytest.mark.parametrize("limit", [None, 100])
@pytest.mark.parametrize("template", ["chatml", "trimmed"])
def test_empty_replies_are_counted_on_every_path(
    bpe: Callable, talk: Callable, tally: Callable, template: str, limit: int | None
) -> None:
    rows = [
        talk(("user", "q"), ("assistant", text), ("user", "r"), ("assistant", "yes"))
        for text in ("no", "", " \n", "maybe")
    ]
    tokenizer = bpe("llama3", template)
    assert tally(rows, tokenizer, max_length=limit).feed.renderer.empty_replies == 2
    last = Renderer(tokenizer, last_turn_only=True)
    for row in rows:
        last.samples(row)
    assert last.empty_replies == 0


def test_a_reply_of_calls_or_reasoning_alone_is_not_empty(bpe: Callable) -> None:
    tokenizer = copy.deepcopy(bpe("llama3", "chatml"))
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "m['content']",
        "(m['content'] or '') + (m['reasoning_content'] or '') + (m['tool_calls'] | tojson)",
    )
    use = {"type": "tool_use", "name": "f", "input": {"a": 1}}
    asked = {"role": "user", "content": "q"}
    renderer = Renderer(tokenizer)
    for part in (use, {"type": "thinking", "thinking": "hm"}):
        renderer.samples(conversation_of({"messages": [asked, reply(part)]}, PLACE))
    assert renderer.empty_replies == 0
