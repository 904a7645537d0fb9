from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vtrim.chat.conversation import Conversation, Origin, conversation_of, is_heldout

PLACE = Origin("f.jsonl", 1)


def of(**row: Any) -> Conversation:
    return conversation_of(row, PLACE)


def roles(conversation: Conversation) -> list[str]:
    return [message["role"] for message in conversation.messages]


@pytest.mark.parametrize(
    ("spelling", "role"),
    [
        ("human", "user"),
        ("Human", "user"),
        ("user", "user"),
        ("gpt", "assistant"),
        ("GPT", "assistant"),
        ("chatgpt", "assistant"),
        ("bing", "assistant"),
        ("bard", "assistant"),
        ("function_call", "assistant"),
        ("observation", "tool"),
        ("tool", "tool"),
        ("function", "tool"),
        ("System", "system"),
    ],
)
def test_every_usual_spelling_of_a_role_is_known(spelling: str, role: str) -> None:
    assert roles(of(conversations=[{"from": spelling, "value": "x"}])) == [role]
    assert roles(of(messages=[{"role": spelling, "content": "x"}])) == [role]


def test_messages_win_over_conversations() -> None:
    both = of(
        messages=[{"role": "user", "content": "m"}], conversations=[{"from": "gpt", "value": "c"}]
    )
    assert (both.kind, both.messages[0]["content"]) == ("messages", "m")


def test_the_system_text_of_a_sharegpt_row_comes_first_once() -> None:
    turns = [{"from": "human", "value": "q"}]
    assert roles(of(conversations=turns, system="s")) == ["system", "user"]
    own = [{"from": "system", "value": "mine"}, *turns]
    assert of(conversations=own, system="s").messages[0]["content"] == "mine"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("", ""),
        ([], ""),
        ([{"type": "text", "text": "gold "}, {"type": "text", "text": "grey"}], "gold grey"),
        ([{"type": "image_url", "image_url": {"url": "x"}}], ""),
        (["a", {"text": "b"}], "ab"),
    ],
)
def test_content_is_joined_to_one_text(content: Any, text: str) -> None:
    assert of(messages=[{"role": "assistant", "content": content}]).messages[0]["content"] == text


def test_tools_are_read_as_a_list_or_as_its_json_text() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert of(messages=[], tools=tools).tools == tuple(tools)
    assert of(messages=[], tools='[{"name": "f"}]').tools == ({"name": "f"},)
    assert of(messages=[], tools="").tools is None


def test_a_row_with_ids_and_mask_is_a_recorded_row() -> None:
    row = of(input_ids=[5, 6, 7], loss_mask=[0, 1, 1], messages=[])
    assert row.kind == "recorded"
    assert row.recorded is not None
    assert row.recorded.ids.dtype == np.int64
    assert row.recorded.mask.tolist() == [False, True, True]


def test_ids_without_a_mask_are_not_a_recorded_row() -> None:
    assert of(input_ids=[5], messages=[{"role": "user", "content": "q"}]).kind == "messages"


def test_about_one_conversation_in_twenty_is_held_out_and_always_the_same_ones(
    talk: Callable,
) -> None:
    talks = [talk(("user", f"question {n}"), ("assistant", "yes")) for n in range(4000)]
    chosen = [is_heldout(one) for one in talks]
    assert 150 < sum(chosen) < 250
    assert chosen == [is_heldout(one) for one in talks]


def test_the_split_depends_on_content_alone_not_on_the_form_of_the_row() -> None:
    for n in range(200):
        plain = of(
            messages=[{"role": "user", "content": f"q{n}"}, {"role": "assistant", "content": "a"}]
        )
        other = conversation_of(
            {
                "conversations": [
                    {"from": "human", "value": f"q{n}"},
                    {"from": "gpt", "value": "a"},
                ],
                "source": "elsewhere",
                "id": n,
            },
            Origin("other.jsonl", 99),
        )
        assert is_heldout(plain) == is_heldout(other)


def test_recorded_rows_without_messages_are_split_by_their_ids() -> None:
    chosen = [
        is_heldout(of(input_ids=[n, n + 1], loss_mask=[0, 1], messages=[])) for n in range(2000)
    ]
    assert 60 < sum(chosen) < 140


def test_shared_rows_with_other_role_names_have_their_known_counts(
    inputs: Path, toy: Callable, tally: Callable
) -> None:
    found = tally(inputs / "g03_sharegpt_alias.jsonl", toy("tok_words"))
    assert (found.feed.rows_used, found.total, found.tokens["<|done|>"]) == (6, 15, 6)
    assert found.tokens["owl"] == 0
    assert found.skipped.counts == {"unknown role": 1}
    assert "g03_sharegpt_alias.jsonl:7: role 'narrator'" in found.skipped.lines()[0]
