"""A chain of tokens drafted one by one with an EAGLE-3 draft (arXiv:2503.01840).

Shapes: B sequences, L drafted tokens, d hidden size, k draft vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from vtrim.decoding.draft_rows import Batch, DraftRows
from vtrim.decoding.protocol import Ask, Proposal
from vtrim.decoding.sampling import Purpose, draw, law
from vtrim.errors import OptionError
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
        if not 0 <= min_confidence < 1:
            raise OptionError(
                f"min_confidence={min_confidence:g} must be at least 0 (off) and below 1: it is a "
                "product of probabilities."
            )
        super().__init__(draft, embedding)
        self.min_confidence = min_confidence

    def propose(
        self, asks: Sequence[Ask], num_draft_tokens: int, *, temperature: float, seed: int
    ) -> list[Proposal]:
        """The chain behind each sequence."""
        batch = self.commit(asks)
        lengths = [max(0, min(num_draft_tokens, ask.room)) for ask in asks]
        hidden, confidence = batch.hidden, torch.zeros(len(asks), device=batch.hidden.device)
        drafted: list[Tensor] = []
        scores: list[Tensor] = []
        while len(drafted) < max(lengths):
            if drafted:
                hidden = self._forward(batch, drafted[-1], hidden, len(drafted))
            logits = self.draft.logits(hidden)[:, 0].float()
            if temperature == 0:
                index = logits.argmax(dim=-1)
            else:
                logits = law(logits, temperature)
                index = _draw(logits.exp(), batch, len(drafted), seed)
            scores.append(logits)
            drafted.append(self.draft.vocab_ids[index])
            if self.min_confidence > 0:
                chosen = logits.log_softmax(-1).gather(-1, index[:, None])
                confidence = confidence + chosen[:, 0]
                goes_on = (confidence >= math.log(self.min_confidence)).tolist()
                lengths = [
                    most if on else min(most, len(drafted))
                    for most, on in zip(lengths, goes_on, strict=True)
                ]
        if not drafted:
            return [Proposal.nothing(hidden.device) for _ in asks]
        return self._proposals(lengths, drafted, scores, temperature)

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

    def _proposals(
        self, lengths: list[int], drafted: list[Tensor], scores: list[Tensor], temperature: float
    ) -> list[Proposal]:
        """Each sequence's own part of the drafted tokens [L][B] and their laws [L][B, k]."""
        tokens = torch.stack(drafted, dim=1)
        # Changes nothing where a law was drawn from.
        laws = torch.stack(scores, dim=1).log_softmax(-1)
        proposals = []
        for line, length in enumerate(lengths):
            log_q = laws[line, :length]
            proposals.append(
                Proposal(
                    tokens=tokens[line, :length],
                    log_q=log_q if temperature > 0 else None,
                    log_q_soft=log_q,
                    vocab_ids=self.draft.vocab_ids,
                )
                if length
                else Proposal.nothing(tokens.device)
            )
        return proposals


def _draw(weights: Tensor, batch: Batch, step: int, seed: int) -> Tensor:
    """Index [B] of each sequence's token; its number depends on its own place only.

    weights: [B, k].
    """
    drawn = [
        draw(weights[line], (seed, ask.prompt, base + 1 + step), Purpose.DRAFT)
        for line, (ask, base) in enumerate(zip(batch.asks, batch.base, strict=True))
    ]
    return torch.stack(drawn)
