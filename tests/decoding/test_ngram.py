"""Drafts copied from earlier in the sequence."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from vtrim.decoding.ngram import NgramDrafter
from vtrim.decoding.protocol import Ask, Proposal

CPU = torch.device("cpu")
NONE = torch.empty(0, 0)


def drafted(tokens: Sequence[int], length: int = 4, room: int = 99, **options: int) -> Proposal:
    drafter = NgramDrafter(CPU, **options)
    drafter.open(1, 1000)
    drafter.prefill(0, tokens[:-1], NONE)
    ask = Ask(0, tokens, NONE, room, 0)
    (proposal,) = drafter.propose([ask], length, temperature=0.0, seed=0)
    return proposal


@pytest.mark.parametrize(
    ("tokens", "copy"),
    [
        ([1, 2, 3, 4, 5, 6, 1, 2, 3], [4, 5, 6, 1]),  # three known tokens
        ([7, 2, 3, 4, 9, 3, 5, 6, 2, 3], [4, 9, 3, 5]),  # the longer suffix, not the later place
        ([5, 1, 8, 5, 2, 9, 5], [2, 9, 5, 2]),  # of equal suffixes the latest place
        ([4, 4], [4, 4, 4, 4]),  # a copy of its own tokens goes on
        ([1, 2, 1, 2], [1, 2, 1, 2]),
        ([1, 2, 3], []),
        ([1], []),
    ],
)
def test_what_followed_the_latest_place_of_the_longest_suffix_is_proposed(
    tokens: list[int], copy: list[int]
) -> None:
    proposal = drafted(tokens)
    assert proposal.ids == copy
    assert proposal.is_chain


def test_no_more_is_proposed_than_asked_for_or_fits() -> None:
    assert drafted([1, 2, 3, 1, 2], length=2).ids == [3, 1]
    assert drafted([1, 2, 3, 1, 2], room=1).ids == [3]
    assert drafted([1, 2, 3, 1, 2], length=0).size == 0


def test_suffixes_outside_the_lengths_are_not_looked_for() -> None:
    tokens = [1, 2, 3, 9, 8, 3, 7, 2, 3]
    assert drafted(tokens, length=1).ids == [9]
    assert drafted(tokens, length=1, max_ngram=1).ids == [7]
    assert drafted([3, 9, 8, 3], min_ngram=2).size == 0


def test_a_copy_is_certain_over_the_ids_it_holds() -> None:
    proposal = drafted([5, 9, 2, 9, 5, 1, 5, 9, 2], length=3)
    assert proposal.ids == [9, 5, 1]
    assert proposal.log_q is None
    assert proposal.vocab_ids.tolist() == [1, 5, 9]
    assert proposal.log_q_soft.exp().tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
    repeated = drafted([4, 4, 4])
    assert repeated.vocab_ids.tolist() == [4]
    assert repeated.log_q_soft.tolist() == [[0.0]] * 4


def slow(tokens: Sequence[int], length: int) -> list[int]:
    """The same by scanning the whole sequence."""
    for size in (3, 2, 1):
        for end in range(len(tokens) - 1, size - 1, -1):
            if size < len(tokens) and tokens[end - size : end] == tokens[-size:]:
                grown = list(tokens)
                for step in range(length):
                    grown.append(grown[end + step])
                return grown[len(tokens) :]
    return []


def test_growing_sequences_in_slots_give_what_a_scan_of_each_gives() -> None:
    dice = random.Random(4)
    drafter = NgramDrafter(CPU)
    drafter.open(3, 100)
    texts: list[list[int]] = [[], [], []]
    for round_ in range(120):
        for slot, text in enumerate(texts):
            if not text or dice.random() < 0.03:  # a new sequence takes the slot
                text[:] = [dice.randrange(5) for _ in range(dice.randint(1, 9))]
                drafter.prefill(slot, text, NONE)
            text += [dice.randrange(5) for _ in range(dice.randint(1, 4))]
        order = dice.sample(range(3), dice.randint(1, 3))
        asks = [Ask(slot, texts[slot], NONE, 99, slot) for slot in order]
        length = dice.randrange(6)
        proposals = drafter.propose(asks, length, temperature=0.7, seed=round_)
        for ask, proposal in zip(asks, proposals, strict=True):
            assert proposal.ids == slow(list(ask.tokens), length)


def test_what_a_table_takes_in_is_read_once() -> None:
    class Counting(list[int]):
        reads = 0

        def __getitem__(self, index: Any) -> Any:
            Counting.reads += 1
            return super().__getitem__(index)

    tokens = Counting(random.Random(1).choices(range(50), k=2000))
    drafter = NgramDrafter(CPU)
    drafter.open(1, 3000)
    drafter.prefill(0, tokens, NONE)
    whole, Counting.reads = Counting.reads, 0
    assert whole <= 3 * len(tokens)
    for _ in range(10):
        tokens.append(3)
        drafter.propose([Ask(0, tokens, NONE, 5, 0)], 3, temperature=0.0, seed=0)
    assert Counting.reads <= 10 * 10
