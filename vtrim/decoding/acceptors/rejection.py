"""Speculative sampling (arXiv:2211.17192): the output follows the target's law exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vtrim.decoding.acceptors.rule import Chances, Rule, Spot
from vtrim.decoding.protocol import Proposal


@dataclass(frozen=True, kw_only=True)
class Rejection(Rule):
    """Keeps x with probability min(1, p(x) / q(x)), else goes on with the residual over all of V.

    q is the law x was really drawn from: 0 outside the draft vocabulary, and 1 at x for a one-hot
    proposal, whose residual is p without x. Siblings are judged in the drafter's order, each by the
    normalised residual of the one before (multi-step speculative sampling, arXiv:2305.09781;
    siblings with a law must have been drawn from it independently of each other). The residual of
    the last gives the next token. At temperature 0 both laws are one-hot: exact matching.
    """

    name: ClassVar[str] = "rejection"
    lossless: ClassVar[bool] = True
    exact_at_0: ClassVar[bool] = True

    def chances(self, spot: Spot) -> Chances:
        """The ratios, and the residual behind each rejection."""
        return ratio_chances(spot, lambda p, _: p)


def ratio_chances(spot: Spot, adjust: Callable[[Tensor, int], Tensor]) -> Chances:
    """Rejection sampling with the target's law p as ``adjust(p, x)`` states it for token x."""
    for count, (node, token) in enumerate(spot.drafted):
        p = adjust(spot.p if count == 0 else spot.p / spot.p.sum(), token)
        yield node, accept_probability(p, spot.proposal, node), "ratio"
        spot.p = residual(p, spot.proposal, node)


def accept_probability(p: Tensor, proposal: Proposal, node: int) -> float:
    """Chance that a drafted token is kept: min(1, p(x) / q(x)). p: [V], of sum 1."""
    return min(1.0, float(p[proposal.ids[node]]) / proposal.token_q[node])


def residual(p: Tensor, proposal: Proposal, node: int) -> Tensor:
    """[V] weights (p - q)_+ of the token after a rejection, not normalised. p: [V].

    Equal laws leave nothing and never reject; where rounding alone left nothing, p stands in.
    """
    rest = p.clone()
    if proposal.log_q is None:
        rest[proposal.ids[node]] = 0.0
    else:
        rest[proposal.vocab_ids] -= proposal.log_q[node].exp()
        rest.clamp_(min=0.0)
    return torch.where(rest.sum() > 0, rest, p)  # no wait for a device
