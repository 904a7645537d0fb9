"""Speculative sampling (arXiv:2211.17192): the output follows the target's law exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vtrim.decoding.acceptors.greedy import match_argmax
from vtrim.decoding.protocol import Proposal, Verdict, Verification
from vtrim.decoding.sampling import Purpose, draw, law, target_token, uniform


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """Keeps x with probability min(1, p(x) / q(x)), else draws from the residual over all of V.

    q is the law x was really drawn from: 0 outside the draft vocabulary, and 1 at x for a one-hot
    proposal. At temperature 0 both laws are one-hot, and the rule is exact matching.
    """

    seed: int = 0
    name: ClassVar[str] = "rejection"
    lossless: ClassVar[bool] = True
    greedy_only: ClassVar[bool] = False

    def begin(self, hidden: Tensor, head: Callable[[Tensor], Tensor], prompt: int) -> None:
        """Nothing to prepare."""

    def accept(self, proposal: Proposal, view: Verification) -> Verdict:
        """Judges the chain up to its first rejected token."""
        if view.temperature == 0:
            return match_argmax(proposal, view)
        drafted = proposal.tokens.tolist()
        for row, token in enumerate(drafted):
            place = (self.seed, view.prompt, view.position + row)
            p = law(view.logits[row], view.temperature, view.top_k, view.top_p).exp()
            if uniform(place, Purpose.ACCEPT) < accept_probability(p, proposal, row):
                continue
            token = int(draw(residual(p, proposal, row), place, Purpose.TARGET))
            return Verdict(tuple(range(row)), token, ("ratio",) * row)
        length = len(drafted)
        token = target_token(view, length, self.seed)
        return Verdict(tuple(range(length)), token, ("ratio",) * length)


def accept_probability(p: Tensor, proposal: Proposal, row: int) -> float:
    """Chance that the drafted token of a row is kept: min(1, p(x) / q(x)). p: [V]."""
    token = proposal.tokens[row]
    if proposal.log_q is None:
        return float(p[token])
    index = int(torch.searchsorted(proposal.vocab_ids, token))
    return min(1.0, float(p[token]) / float(proposal.log_q[row, index].exp()))


def residual(p: Tensor, proposal: Proposal, row: int) -> Tensor:
    """[V] weights (p - q)_+ of the token after a rejection, not normalised. p: [V].

    Equal laws leave nothing and never reject; where rounding alone left nothing, p stands in.
    """
    rest = p.clone()
    if proposal.log_q is None:
        rest[proposal.tokens[row]] = 0.0
    else:
        rest[proposal.vocab_ids] -= proposal.log_q[row].exp()
        rest.clamp_(min=0.0)
    return rest if float(rest.sum()) > 0 else p
