"""A drafter that knows the replies: random trees around them, the same in any batch."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vtrim.decoding.protocol import ROOT, Ask, Proposal


class TreeOracle:
    """Drafts the known continuation, cut off by chance, among wrong branches.

    replies: prompt index -> the whole text; branches: most wrong siblings a node; 0 gives chains.
    """

    context_length = 1 << 20

    def __init__(
        self, replies: Mapping[int, list[int]], rows: int, *, branches: int, miss: float = 0.25
    ) -> None:
        self.replies, self.rows, self.branches, self.miss = replies, rows, branches, miss
        self.seen: dict[int, int] = {}

    def open(self, slots: int, capacity: int) -> None:
        self.seen = dict.fromkeys(range(slots), 0)
        assert capacity > 0

    def prefill(self, slot: int, tokens: Sequence[int], aux: Tensor) -> None:
        assert aux.shape[0] < len(tokens)
        self.seen[slot] = aux.shape[0]

    def propose(
        self, asks: Sequence[Ask], num_draft_tokens: int, *, temperature: float, seed: int
    ) -> list[Proposal]:
        del temperature, seed
        assert len({ask.slot for ask in asks}) == len(asks)
        return [self._one(ask, min(num_draft_tokens, ask.room)) for ask in asks]

    def _one(self, ask: Ask, depth: int) -> Proposal:
        self.seen[ask.slot] += len(ask.fresh)
        assert self.seen[ask.slot] == len(ask.tokens) - 1, "every row comes once, in order"
        dice = random.Random(1000 * ask.prompt + len(ask.tokens))
        known = [*self.replies[ask.prompt], *([0] * 64)][len(ask.tokens) :]
        tokens: list[int] = []
        parents: list[int] = []
        beam = ROOT
        for level in range(depth):
            right = known[level]
            if self.branches == 0:
                wrong = dice.random() < self.miss
                tokens.append((right + 1) % self.rows if wrong else right)
                parents.append(level - 1)
                continue
            others = dice.sample(range(self.rows), dice.randint(0, self.branches))
            family = [token for token in others if token != right]
            if dice.random() > self.miss:
                family.insert(dice.randint(0, len(family)), right)
            if not family:
                break
            first = len(tokens)
            tokens += family
            parents += [beam] * len(family)
            # on below the right token where there is one, so that accepted paths are scattered
            beam = first + (family.index(right) if right in family else 0)
        if not tokens:
            return Proposal.nothing(ask.aux.device)
        flat = torch.zeros(len(tokens), self.rows).log_softmax(-1)
        given = None if self.branches == 0 else tuple(parents)
        return Proposal(torch.tensor(tokens), None, flat, torch.arange(self.rows), given)
