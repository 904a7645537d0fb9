"""``--map``: columns of any name."""

from __future__ import annotations

from typing import Any

import pytest

from vtrim.chat.columns import absent_columns, parse_columns
from vtrim.chat.conversation import (
    Conversation,
    Origin,
    RowError,
    conversations_of,
)
from vtrim.errors import OptionError

PLACE = Origin("f.jsonl", 1)
QA = [("user", "q"), ("assistant", "a")]


def reply(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def turns(conversation: Conversation) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in conversation.messages]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("user=question,assistant=answer", {"user": "question", "assistant": "answer"}),
        (" assistant = a ", {"assistant": "a"}),
        ("system=s,user=q,assistant=a.0.b", {"system": "s", "user": "q", "assistant": "a.0.b"}),
        ("messages=dialog", {"messages": "dialog"}),
    ],
)
def test_a_mapping_is_parsed(text: str, columns: dict[str, str]) -> None:
    assert parse_columns(text) == columns


@pytest.mark.parametrize(
    "text",
    ["", "user=q", "assistant", "assistant=", "bot=a", "assistant=a,assistant=b", "=a",
     "messages=m,assistant=a"],
)  # fmt: skip
def test_a_mapping_that_names_no_reply_or_no_known_part_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=f"--map {text}"):
        parse_columns(text)


@pytest.mark.parametrize(
    ("row", "columns", "expected"),
    [
        ({"question": "q", "answer": "a"}, "user=question,assistant=answer", QA),
        ({"user_query": "q", "chatgpt_response": "a", "messages": []},
         "user=user_query,assistant=chatgpt_response", QA),
        ({"q": "q", "a": "a", "s": "be"}, "user=q,assistant=a,system=s", [("system", "be"), *QA]),
        ({"q": "q", "a": "a", "s": None}, "user=q,assistant=a,system=s", QA),
        ({"q": "q", "a": "a"}, "user=q,assistant=a,system=s", QA),
        ({"a": "a"}, "assistant=a", QA[1:]),
        ({"q": ["1", "2"], "a": ["3", "4"]}, "user=q,assistant=a",
         [("user", "1"), ("assistant", "3"), ("user", "2"), ("assistant", "4")]),
        ({"q": "q", "a": [{"type": "text", "text": "a"}]}, "user=q,assistant=a", QA),
        ({"q": "q", "choices": [{"turns": [{"content": "a"}]}]},
         "user=q,assistant=choices.0.turns.0.content", QA),
        ({"a.b": "a", "a": {"b": "x"}}, "assistant=a.b", QA[1:]),
        ({"dialog": [{"from": "human", "value": "q"}, reply("a")]}, "messages=dialog", QA),
    ],
)  # fmt: skip
def test_mapped_columns_become_turns(
    row: dict[str, Any], columns: str, expected: list[tuple[str, str]]
) -> None:
    (found,) = conversations_of(row, PLACE, parse_columns(columns))
    assert (found.kind, turns(found)) == ("mapped", expected)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"q": "q"}, "missing column"),
        ({"q": "q", "a": None}, "missing column"),
        ({"q": "q", "a": 7}, "unreadable content"),
        ({"q": "q", "a": ["1", "2"]}, "uneven columns"),
    ],
)
def test_a_later_row_without_the_mapped_columns_has_a_reason(
    row: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RowError) as caught:
        conversations_of(row, PLACE, {"user": "q", "assistant": "a"})
    assert caught.value.reason == reason


def test_a_column_is_absent_where_no_row_has_it_not_where_it_is_null() -> None:
    rows = [{"q": 1}, {"q": 2, "a": None}, {"q": 3, "deep": {"er": [7]}}]
    assert absent_columns(rows, ["q", "a", "deep.er.0"]) == set()
    assert absent_columns(rows, ["b", "q", "deep.er.1"]) == {"b", "deep.er.1"}
    assert absent_columns([], ["a"]) == {"a"}


def test_a_row_without_the_mapped_system_text_has_none() -> None:
    columns = {"user": "q", "assistant": "a", "system": "s"}
    for row in ({"q": "x", "a": "y"}, {"q": "x", "a": "y", "s": None}):
        (talk,) = conversations_of(row, PLACE, columns)
        assert [turn["role"] for turn in talk.messages] == ["user", "assistant"]
