"""Which replies of a row are learned, and what tells two conversations apart."""

from __future__ import annotations

from typing import Any

import pytest

from vtrim.chat.conversation import (
    Conversation,
    Origin,
    RowError,
    conversation_key,
    conversations_of,
    is_heldout,
)

PLACE = Origin("f.jsonl", 1)
USER = {"role": "user", "content": "q"}


def reply(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def of(**row: Any) -> list[Conversation]:
    return list(conversations_of(row, PLACE))


def learned(weights: list[int | None]) -> list[tuple[list[str], str]]:
    """(learned replies, last reply) of each conversation in a row with these weights."""
    turns = []
    for n, weight in enumerate(weights):
        turns += [USER, reply(str(n)) if weight is None else reply(str(n), weight=weight)]
    found = []
    for talk in of(messages=turns):
        assert all(set(turn) == {"role", "content"} for turn in talk.messages)
        mine = [t["content"] for t in talk.messages[talk.context :] if t["role"] == "assistant"]
        found.append((mine, talk.replies[-1]))
    return found


@pytest.mark.parametrize(
    ("weights", "found"),
    [
        ([None, 1], [(["0", "1"], "1")]),
        ([0, 1], [(["1"], "1")]),
        ([1, 0], [(["0"], "0")]),
        ([0, None, 1, 0, 0, 1], [(["1", "2"], "2"), (["5"], "5")]),
        ([1, 0, 1], [(["0"], "0"), (["2"], "2")]),
    ],
)
def test_a_reply_of_weight_0_is_read_and_not_learned(
    weights: list[int | None], found: list[tuple[list[str], str]]
) -> None:
    assert learned(weights) == found


def test_a_row_whose_replies_all_have_weight_0_has_none() -> None:
    with pytest.raises(RowError, match="no reply: every reply has weight 0"):
        of(messages=[USER, reply("a", weight=0)])


def test_the_parts_of_one_row_are_on_one_side_of_the_split() -> None:
    for n in range(200):
        asked = {"role": "user", "content": str(n)}
        turns = [asked, reply("a"), USER, reply("b", weight=0), USER, reply("c")]
        one, two = of(messages=turns)
        assert is_heldout(one) == is_heldout(two)
        assert conversation_key(one) != conversation_key(two)


def test_the_weight_of_a_recorded_row_is_its_mask() -> None:
    row = {"input_ids": [1, 2], "loss_mask": [0, 1], "messages": [USER, reply("a", weight=0)]}
    (talk,) = of(**row)
    assert talk.recorded is not None
    assert talk.recorded.mask.tolist() == [False, True]


def test_the_key_tells_apart_what_texts_do_not_and_the_split_does_not() -> None:
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    other = {"function": {"name": "f", "arguments": {"a": 2}}}
    rows: list[dict[str, Any]] = [
        {"messages": [USER, reply("")]},
        {"messages": [USER, reply("", tool_calls=[call])]},
        {"messages": [USER, reply("", tool_calls=[other])]},
        {"messages": [USER, reply("", reasoning_content="so")]},
        {"messages": [USER, reply("")], "tools": [{"name": "f"}]},
        {"messages": [USER, reply("")], "input_ids": [1, 2], "loss_mask": [0, 1]},
        {"messages": [USER, reply("")], "input_ids": [1, 3], "loss_mask": [0, 1]},
        {"messages": [USER, reply("")], "input_ids": [1, 3], "loss_mask": [1, 1]},
    ]
    talks = [of(**row)[0] for row in rows]
    assert len({conversation_key(talk) for talk in talks}) == len(rows)
    assert len({is_heldout(talk) for talk in talks}) == 1
    assert conversation_key(of(**rows[1])[0]) == conversation_key(of(**rows[1], id=7)[0])


@pytest.mark.parametrize("empty", [[], "", None])
def test_an_empty_column_of_messages_hides_no_other_form(empty: Any) -> None:
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    (talk,) = of(messages=empty, conversations=turns)
    assert (talk.kind, talk.replies) == ("sharegpt", ["a"])
    assert of(messages=empty, prompt="q", completion="a")[0].replies == ["a"]


def test_a_null_role_does_not_hide_the_sender() -> None:
    turns = [{"role": None, "from": "human", "value": "q"}, {"role": None, "from": "gpt"}]
    assert [turn["role"] for turn in of(messages=turns)[0].messages] == ["user", "assistant"]


def test_recorded_ids_beside_turns_that_cannot_be_read_stay_usable() -> None:
    (talk,) = of(input_ids=[1, 2], loss_mask=[0, 1], messages=[{"role": "narrator"}])
    assert (talk.kind, talk.messages) == ("recorded", ())


@pytest.mark.parametrize(
    ("ids", "mask"),
    [
        ([1.5, 2], [0, 1]),
        ([1, 2], [0.0, 0.9]),
        ([1, 2], [0.0, float("nan")]),
        (["1", "2"], [0, 1]),
        ([1, 2], ["0", "1"]),
        ([1, None], [0, 1]),
        ([True, False], [0, 1]),
        ([1, 2**63], [0, 1]),
        ([1, 2**70], [0, 1]),
        ([1.0, 1e300], [0, 1]),
        ([[1], [2, 3]], [0, 1]),
    ],
)
def test_recorded_ids_and_masks_that_are_no_whole_numbers_are_refused(ids: Any, mask: Any) -> None:
    with pytest.raises(RowError, match="bad recorded ids"):
        of(input_ids=ids, loss_mask=mask)


def test_whole_numbers_may_be_floats_and_a_mask_may_be_of_truths() -> None:
    (talk,) = of(input_ids=[1.0, 2.0], loss_mask=[False, True])
    assert talk.recorded is not None
    assert (talk.recorded.ids.tolist(), talk.recorded.mask.tolist()) == ([1, 2], [False, True])


def test_a_system_text_may_be_parts_and_nothing_else() -> None:
    row = {"instruction": "q", "output": "a"}
    (talk,) = of(**row, system=[{"type": "text", "text": "be kind"}])
    assert talk.messages[0] == {"role": "system", "content": "be kind"}
    with pytest.raises(RowError, match="unreadable content: content is dict"):
        of(**row, system={"a": 1})
