"""Typical acceptance (Medusa, arXiv:2401.10774): what is not surprising given the entropy stays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from vtrim.decoding.acceptors.options import check_range
from vtrim.decoding.acceptors.rule import Chances, Rule, Spot


@dataclass(frozen=True, kw_only=True)
class Typical(Rule):
    """Keeps x if p(x) > min(epsilon, delta exp(-H(p))), whatever the draft thought of it.

    H is the entropy of the target's law [nats]; with delta below 1 its arg-max always passes. After
    a rejection, as after a whole path, the token is drawn from p. In a tree the first sibling that
    passes is followed, in the drafter's order; the paper takes the longest path that passes, which
    needs the laws of all nodes. At temperature 0 the entropy is 0 and the rule is exact matching.
    """

    epsilon: float = 0.09
    delta: float = 0.3
    name: ClassVar[str] = "typical"
    lossless: ClassVar[bool] = False
    exact_at_0: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raises: OptionError when a value is out of range."""
        check_range("epsilon", self.epsilon, 0, 1)
        check_range("delta", self.delta, 0, 1)

    def chances(self, spot: Spot) -> Chances:
        """1 above the threshold, else 0."""
        if not spot.nodes:
            return
        entropy = float(torch.special.entr(spot.p).sum())
        threshold = min(self.epsilon, self.delta * math.exp(-entropy))
        for node, token in spot.drafted:
            yield node, float(float(spot.p[token]) > threshold), "typical"
