"""Learning only a part of a conversation's replies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from vtrim.chat.conversation import Origin, conversation_of
from vtrim.chat.feed import ReplyFeed
from vtrim.chat.render import Renderer


@pytest.mark.parametrize("template", ["chatml", "marked", "think", "returns"])
def test_only_the_last_reply_is_learned_when_asked(
    bpe: Callable, talk: Callable, template: str
) -> None:
    tokenizer = bpe("llama3", template)
    row = talk(("user", "q"), ("assistant", "one"), ("user", "r"), ("assistant", "two"))
    [sample] = Renderer(tokenizer, last_turn_only=True).samples(row)
    end = "<|return|>" if template == "returns" else "<|im_end|>"
    assert tokenizer.decode(sample.ids[sample.mask]) == f"two{end}"
    longer = talk(*[(m["role"], m["content"]) for m in row.messages], ("user", "unanswered"))
    [same] = Renderer(tokenizer, last_turn_only=True).samples(longer)
    assert same.ids.tolist() == sample.ids.tolist()


def test_of_recorded_ids_the_last_run_is_learned_when_asked(bpe: Callable) -> None:
    row = {"input_ids": [5, 6, 7, 8, 9, 10], "loss_mask": [0, 1, 0, 1, 1, 0]}
    [sample] = Renderer(bpe("llama3", "chatml"), last_turn_only=True).samples(
        conversation_of(row, Origin("made.jsonl", 1))
    )
    assert (sample.ids.tolist(), sample.mask.tolist()) == (
        [5, 6, 7, 8, 9],
        [False, False, False, True, True],
    )


@pytest.mark.parametrize("last", [False, True])
def test_replies_among_the_context_are_prompt(bpe: Callable, talk: Callable, last: bool) -> None:
    tokenizer = bpe("llama3", "chatml")
    row = talk(("user", "q"), ("assistant", "one"), ("user", "r"), ("assistant", "two"))
    [sample] = Renderer(tokenizer, last_turn_only=last).samples(dataclasses.replace(row, context=3))
    assert tokenizer.decode(sample.ids[sample.mask]) == "two<|im_end|>"
    assert "one" in tokenizer.decode(sample.ids)


def test_only_the_last_replies_are_counted_when_asked(bpe: Callable, talk: Callable) -> None:
    tokenizer = bpe("llama3", "chatml")
    row = talk(("user", "q"), ("assistant", "one"), ("user", "r"), ("assistant", "two"))
    feed = ReplyFeed(Renderer(tokenizer, last_turn_only=True))
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    for ids, weights, *_ in feed.feed([row, row]):
        np.add.at(counts, ids, 1 if weights is None else weights.astype(np.int64))
    expected = tokenizer("two<|im_end|>", add_special_tokens=False)["input_ids"]
    assert counts.sum() == 2 * len(expected)
    assert all(counts[token] == 2 * expected.count(token) for token in expected)
