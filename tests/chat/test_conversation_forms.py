"""Every published form of a row, and what it becomes."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrim.chat.conversation import (
    Conversation,
    Origin,
    RowError,
    conversation_key,
    conversation_of,
    conversations_of,
    is_heldout,
)

PLACE = Origin("f.jsonl", 1)
QA = [("user", "q"), ("assistant", "a")]


def turns(conversation: Conversation) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in conversation.messages]


def ask(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def reply(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    ("row", "kind", "expected"),
    [
        ({"messages": [ask("q"), reply("a")]}, "messages", QA),
        ({"conversations": [{"from": "human", "value": "q"}, reply("a")]}, "sharegpt", QA),
        ({"conversation": [ask("q"), reply("a")]}, "sharegpt", QA),
        ({"messages": [{"role": "prompter", "text": "q"}, reply("a")]}, "messages", QA),
        ({"instruction": "q", "output": "a"}, "alpaca", QA),
        ({"instruction": "q", "input": "", "response": "a", "text": "q a"}, "alpaca", QA),
        ({"instruction": "q", "input": None, "output": None, "response": "a"}, "alpaca", QA),
        ({"instruction": "", "input": "q", "output": "a"}, "alpaca", QA),
        (
            {"instruction": "q", "input": "x\ny", "output": ""},
            "alpaca",
            [("user", "q\n\nx\ny"), ("assistant", "")],
        ),
        (
            {"instruction": "q", "output": "a", "system": "s", "history": [["q0", "a0"]]},
            "alpaca",
            [("system", "s"), ("user", "q0"), ("assistant", "a0"), *QA],
        ),
        ({"prompt": "q", "completion": "a"}, "prompt-completion", QA),
        ({"prompt": "q", "response": "a", "system": ""}, "prompt-completion", QA),
        ({"prompt": [ask("q")], "completion": [reply("a")]}, "prompt-completion", QA),
        ({"prompt": [ask("q")], "completion": "a"}, "prompt-completion", QA),
        ({"prompt": "q", "completion": reply("a")}, "prompt-completion", QA),
        ({"prompt": [ask("q")]}, "prompt-completion", QA[:1]),
        ({"messages": [ask("q"), reply("a")], "prompt": "q", "text": "t"}, "messages", QA),
        ({"messages": None, "conversations": None, "prompt": "q", "completion": "a"},
         "prompt-completion", QA),
    ],
)  # fmt: skip
def test_the_form_of_a_row_is_told_from_its_columns(
    row: dict[str, Any], kind: str, expected: list[tuple[str, str]]
) -> None:
    (found,) = conversations_of(row, PLACE)
    assert (found.kind, turns(found), found.context) == (kind, expected, 0)


@pytest.mark.parametrize(
    ("row", "reason", "detail"),
    [
        ({"id": 1, "question": "q"}, "no messages", "columns id, question: name them by --map"),
        ({"question": "q", "answer": "a"}, "no messages", "--map user=question,assistant=answer"),
        ({}, "no messages", r"columns \(none\)"),
        ({str(n): n for n in range(30)}, "no messages", r"columns 0, .*, 11, \.\.\.: name"),
        ({"prompt": "q"}, "no messages", "`prompt` without `completion` or `response`"),
        ({"instruction": "q"}, "no messages", "`instruction` without `output` or `response`"),
        ({"instruction": "q", "output": "a", "history": ["q"]}, "unreadable content", "history"),
        ({"instruction": 3, "output": "a"}, "unreadable content", "int, not text"),
        ({"prompt": 3, "completion": "a"}, "no messages", "`prompt` holds no list of turns"),
        ({"messages": {"role": ["user"], "content": []}}, "no messages", "no list of turns"),
        ({"text": ["q"]}, "no messages", "columns text"),
        ({"prompt": {"role": "user", "text": "q", "replies": []}}, "no reply", "without an as"),
        ({"role": "user", "text": "q", "replies": ["x"]}, "no messages", "not a JSON object"),
        ({"role": "user", "text": "q", "replies": [{"role": "user", "text": "x", "replies": 3}]},
         "no messages", "`replies` of a tree holds no list"),
        ({"messages": [], "tools": [3]}, "unreadable tools", "not a list of JSON objects"),
        ({"messages": [], "tools": ["{"]}, "unreadable tools", "not a list of JSON objects"),
    ],
)  # fmt: skip
def test_a_row_of_no_known_form_says_what_it_holds(
    row: dict[str, Any], reason: str, detail: str
) -> None:
    with pytest.raises(RowError, match=detail) as caught:
        conversations_of(row, PLACE)
    assert caught.value.reason == reason


def test_a_rendered_text_is_kept_as_it_is() -> None:
    found = conversation_of({"text": "<|user|>q<|assistant|>a"}, PLACE)
    assert (found.kind, found.messages, found.text) == ("text", (), "<|user|>q<|assistant|>a")
    assert not found.is_plain


def test_replies_in_a_prompt_are_context_and_not_learned() -> None:
    row = {"prompt": [ask("q0"), reply("a0"), ask("q")], "completion": [reply("a")]}
    (found,) = conversations_of(row, PLACE)
    assert (found.context, len(found.messages)) == (3, 4)
    assert not found.is_plain


def test_calls_without_content_are_a_message_with_empty_text() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    for message in (
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "assistant", "tool_calls": [json.dumps(call)]},
        {"role": "assistant", "tool_calls": json.dumps([call]), "refusal": None},
    ):
        found = conversation_of({"messages": [message]}, PLACE)
        assert found.messages == ({"role": "assistant", "content": "", "tool_calls": [call]},)


def test_the_older_function_call_becomes_a_tool_call() -> None:
    call = {"name": "f", "arguments": "{}"}
    message = {"role": "assistant", "content": None, "function_call": call}
    found = conversation_of({"messages": [message]}, PLACE)
    assert found.messages[0]["tool_calls"] == [{"type": "function", "function": call}]


def test_no_calls_are_no_key() -> None:
    found = conversation_of({"messages": [{**reply("a"), "tool_calls": []}]}, PLACE)
    assert found.messages == (reply("a"),)
    assert found.is_plain


def test_the_result_of_a_tool_may_be_an_object() -> None:
    found = conversation_of({"messages": [{"role": "function", "content": {"t": "é"}}]}, PLACE)
    assert found.messages == ({"role": "tool", "content": '{"t": "é"}'},)
    with pytest.raises(RowError, match="content is dict, not text"):
        conversation_of({"messages": [{"role": "user", "content": {"t": 1}}]}, PLACE)


def test_reasoning_and_names_stay_beside_the_text() -> None:
    extra = {"reasoning_content": "hm", "name": "bot"}
    found = conversation_of({"messages": [{**reply("a"), **extra, "weight": 1}]}, PLACE)
    assert found.messages == ({**reply("a"), **extra},)


def test_tools_may_be_json_texts_each() -> None:
    found = conversation_of({"messages": [], "tools": ['{"name": "f"}', {"name": "g"}]}, PLACE)
    assert found.tools == ({"name": "f"}, {"name": "g"})


def test_the_source_column_has_any_name_and_any_type() -> None:
    row = {"messages": [], "domain": 7, "source": "x"}
    assert conversations_of(row, PLACE, source_column="domain")[0].source == "7"
    assert conversations_of(row, PLACE)[0].source == "x"
    assert conversations_of(row, PLACE, source_column="none")[0].source is None


@pytest.mark.parametrize(
    ("marks", "mask"),
    [
        ({"loss_mask": [0, 1, 1]}, [False, True, True]),
        ({"assistant_masks": [0, 0, 1]}, [False, False, True]),
        ({"completion_mask": [False, True, True]}, [False, True, True]),
        ({"labels": [-100, 6, -100]}, [False, True, False]),
        ({"loss_mask": [1, 0, 0], "labels": [-100, 6, 7]}, [True, False, False]),
    ],
)
def test_recorded_ids_come_with_any_of_the_usual_masks(
    marks: dict[str, list[int]], mask: list[bool]
) -> None:
    found = conversation_of({"input_ids": [5, 6, 7], **marks, "text": "t"}, PLACE)
    assert (found.kind, found.messages, found.text) == ("recorded", (), None)
    assert found.recorded is not None
    assert found.recorded.mask.tolist() == mask


def test_labels_that_are_shifted_already_are_refused() -> None:
    with pytest.raises(RowError, match="are they shifted already"):
        conversation_of({"input_ids": [5, 6, 7], "labels": [6, 7, -100]}, PLACE)


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), st.text())))
def test_split_and_key_come_from_sha256_of_roles_and_texts(pairs: list[tuple[str, str]]) -> None:
    messages = [{"role": role, "content": text} for role, text in pairs]
    found = conversation_of({"messages": messages}, PLACE)
    digest = hashlib.sha256(json.dumps(pairs, ensure_ascii=False).encode()).digest()
    assert is_heldout(found) == (int.from_bytes(digest[:8], "big") % 100 < 5)
    assert conversation_key(found) == int.from_bytes(digest[8:16], "big") >> 1
    assert 0 <= conversation_key(found) < 2**63


def test_known_conversations_stay_on_their_side_of_the_split() -> None:
    held = [n for n in range(80) if is_heldout(conversation_of(
        {"messages": [ask(f"question {n}"), reply('yes "so"\n\t\x01é')]}, PLACE))]  # fmt: skip
    assert held == [0, 2]
