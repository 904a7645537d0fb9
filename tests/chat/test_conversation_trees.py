"""Trees of messages: each path once, each reply learned once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrim.chat.conversation import (
    Conversation,
    Origin,
    RowError,
    conversation_key,
    conversations_of,
    is_heldout,
)

PLACE = Origin("f.jsonl", 1)


def turns(conversation: Conversation) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in conversation.messages]


def node(role: str, text: str, *replies: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "text": text, "replies": list(replies)}


FOLLOW_UP = node("prompter", "q1", node("assistant", "b1"), node("assistant", "b2"))
TREE = node(
    "prompter",
    "q",
    node("assistant", "a1", FOLLOW_UP),
    node("assistant", "a2", node("prompter", "q2")),
    node("assistant", "a3"),
)


@pytest.mark.parametrize("row", [{"prompt": TREE, "message_tree_id": "x"}, TREE])
def test_a_tree_gives_each_path_and_each_reply_is_learned_once(row: dict[str, Any]) -> None:
    found = conversations_of(row, PLACE)
    assert [[text for _, text in turns(one)] for one in found] == [
        ["q", "a1", "q1", "b1"],
        ["q", "a1", "q1", "b2"],
        ["q", "a2"],
        ["q", "a3"],
    ]
    assert [one.context for one in found] == [0, 3, 0, 0]
    assert {one.kind for one in found} == {"tree"}


def test_the_paths_of_a_tree_are_on_one_side_of_the_split() -> None:
    sides = []
    for n in range(400):
        row = node("prompter", f"q{n}", *(node("assistant", f"a{m}") for m in range(4)))
        found = conversations_of(row, PLACE)
        assert len({conversation_key(one) for one in found}) == 4
        (side,) = {is_heldout(one) for one in found}
        sides.append(side)
    assert 5 < sum(sides) < 40


trees = st.recursive(
    st.builds(node, st.sampled_from(["prompter", "assistant"]), st.text(max_size=3)),
    lambda inner: st.builds(
        lambda role, text, replies: node(role, text, *replies),
        st.sampled_from(["prompter", "assistant"]),
        st.text(max_size=3),
        st.lists(inner, max_size=3),
    ),
    max_leaves=12,
)


@given(trees)
def test_in_any_tree_every_reply_is_learned_exactly_once(root: dict[str, Any]) -> None:
    def replies(one: dict[str, Any]) -> list[str]:
        mine = [one["text"]] if one["role"] == "assistant" else []
        return mine + [text for reply in one["replies"] for text in replies(reply)]

    expected = sorted(replies(root))
    if not expected:
        with pytest.raises(RowError, match="without an assistant's"):
            conversations_of(root, PLACE)
        return
    learned = [
        message["content"]
        for one in conversations_of(root, PLACE)
        for message in one.messages[one.context :]
        if message["role"] == "assistant"
    ]
    assert sorted(learned) == expected


def test_a_tree_a_thousand_messages_deep_is_read() -> None:
    root = node("assistant", "end")
    for n in range(1500):
        root = node(("prompter", "assistant")[n % 2], str(n), root)
    (found,) = conversations_of(root, PLACE)
    assert len(found.messages) == 1501


def test_the_calls_and_the_reasoning_of_a_tree_are_kept() -> None:
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "tool_use", "name": "f", "input": {}}]
    row = {"role": "prompter", "text": "q", "replies": [{"role": "assistant", "content": parts}]}
    (found,) = conversations_of(row, Origin("tree.jsonl", 1))
    reply = found.messages[-1]
    assert reply["reasoning_content"] == "hm"
    assert reply["tool_calls"][0]["function"]["name"] == "f"
