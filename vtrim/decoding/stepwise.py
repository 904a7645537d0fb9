"""Chains of many sequences drafted token by token, whatever model drafts them.

Shapes: B sequences, L drafted tokens, k ids that may be drafted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vtrim.decoding.protocol import Ask, Proposal
from vtrim.decoding.sampling import Purpose, draw, law

Step = Callable[[Tensor, Tensor, int], Tensor]
"""(tokens [B] drafted last, the states they came from, how many were drafted) -> new states."""


@dataclass(frozen=True)
class ChainLaw:
    """What is drafted behind states. head: states -> logits [B, k]; vocab_ids: [k] target ids.

    min_confidence: a chain ends with the token that takes the product of its probabilities below.
    """

    head: Callable[[Tensor], Tensor]
    vocab_ids: Tensor
    min_confidence: float

    def draft(
        self,
        asks: Sequence[Ask],
        lengths: Sequence[int],
        hidden: Tensor,
        step: Step,
        *,
        temperature: float,
        seed: int,
    ) -> list[Proposal]:
        """The chain behind each sequence, of ``lengths`` tokens at most.

        hidden: the states behind the last tokens. Each step waits for the device only if there is
        a ``min_confidence``.
        """
        lengths, confidence = list(lengths), torch.zeros(len(asks), device=hidden.device)
        drafted: list[Tensor] = []
        scores: list[Tensor] = []
        while len(drafted) < max(lengths):
            if drafted:
                hidden = step(drafted[-1], hidden, len(drafted))
            logits = self.head(hidden).float()
            if temperature == 0:
                index = logits.argmax(dim=-1)
            else:
                logits = law(logits, temperature)
                index = _draw(logits.exp(), asks, len(drafted), seed)
            scores.append(logits)
            drafted.append(self.vocab_ids[index])
            if self.min_confidence > 0:
                chosen = logits.log_softmax(-1).gather(-1, index[:, None])
                confidence = confidence + chosen[:, 0]
                goes_on = (confidence >= math.log(self.min_confidence)).tolist()
                lengths = [
                    most if on else min(most, len(drafted))
                    for most, on in zip(lengths, goes_on, strict=True)
                ]
        return self._proposals(lengths, drafted, scores, temperature)

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
                    vocab_ids=self.vocab_ids,
                )
                if length
                else Proposal.nothing(tokens.device)
            )
        return proposals


def _draw(weights: Tensor, asks: Sequence[Ask], step: int, seed: int) -> Tensor:
    """Index [B] of each sequence's token; its number depends on its own place. weights: [B, k]."""
    drawn = [
        draw(weights[line], (seed, ask.prompt, len(ask.tokens) + step), Purpose.DRAFT)
        for line, ask in enumerate(asks)
    ]
    return torch.stack(drawn)
