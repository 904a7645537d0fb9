"""A chain of tokens drafted one by one with an EAGLE-3 draft (arXiv:2503.01840).

Shapes: B sequences, L drafted tokens, d hidden size, k draft vocabulary.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from vtrim.decoding.draft_rows import Batch, DraftRows
from vtrim.decoding.draft_size import check_confidence
from vtrim.decoding.protocol import Proposal
from vtrim.decoding.stepwise import ChainLaw
from vtrim.models.draft import Eagle3Draft


class ChainDrafter(DraftRows):
    """Drafts L tokens: one pass over the rows the target has just judged, then L-1 single rows.

    All sequences of a call share each pass. min_confidence: a chain ends with the token at which
    the product of the draft's probabilities of its tokens, under the law they are drawn from (the
    plain softmax when greedy), falls below it; 0 is off. Whether a token is drafted thus depends on
    the ones before it only, which keeps lossless rules lossless; each step then waits for the
    device once. Without it nothing waits before the tokens are read.
    """

    def __init__(
        self, draft: Eagle3Draft, embedding: Tensor, *, min_confidence: float = 0.0
    ) -> None:
        """embedding: [V, d] the target's input embedding, unscaled.

        Raises:
            OptionError: ``min_confidence`` is no probability below 1.
        """
        check_confidence(min_confidence)
        super().__init__(draft, embedding)
        self.min_confidence = min_confidence

    def grow(
        self, batch: Batch, lengths: list[int], *, temperature: float, seed: int
    ) -> list[Proposal]:
        """The chain behind each sequence."""
        chains = ChainLaw(self._head, self.draft.vocab_ids, self.min_confidence)
        step = partial(self._forward, batch)
        return chains.draft(
            batch.asks, lengths, batch.hidden, step, temperature=temperature, seed=seed
        )

    def _head(self, hidden: Tensor) -> Tensor:
        """[B, 1, d] pre-norm -> [B, k]."""
        return self.draft.logits(hidden)[:, 0]

    def _forward(self, batch: Batch, tokens: Tensor, hidden: Tensor, step: int) -> Tensor:
        """The pre-norm outputs [B, 1, d] of the rows of the tokens drafted last, [B]."""
        if batch.bases is None or batch.slots is None:
            row = batch.base[0] + step - 1
            return self.one(batch.asks[0].slot, row, row, tokens[None], hidden, None)
        positions = (batch.bases + (step - 1))[:, None]
        # A chain without room is cut below: what it makes meanwhile may be anything.
        end = min(max(batch.base) + step, self.cache.capacity + 1)
        seen = torch.arange(end, device=tokens.device) <= positions[:, :, None]
        return self.many(batch.slots, positions, positions, tokens[:, None], hidden, seen)
