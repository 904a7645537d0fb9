"""Cactus (arXiv:2604.04987): rejection sampling that favours the drafted token within a budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from vtrim.decoding.acceptors.options import check_range
from vtrim.decoding.acceptors.rejection import ratio_chances
from vtrim.decoding.acceptors.rule import Chances, Rule, Spot


@dataclass(frozen=True, kw_only=True)
class Cactus(Rule):
    """Rejection sampling with p(x) of the drafted token x raised, the rest of p scaled down.

    delta: budget of each judged token [nats]; 0 is ``rejection``, lossless. The raised law lies at
    KL delta from p to the second order: at most delta where h <= 1 - p(x), always at most
    ln(1 + 2 delta), and its total variation from p at most sqrt(delta / 2). Behind a rejection the
    token comes from the residual of the raised law.
    In a tree each sibling has the whole budget, on what its rejected elders left. At temperature 0
    p(x) is 0 or 1, which leaves nothing to raise: the rule is exact matching, whatever the budget.
    """

    delta: float
    name: ClassVar[str] = "cactus"
    exact_at_0: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raises: OptionError when a value is out of range."""
        check_range("delta", self.delta, 0, math.inf)

    @property
    def lossless(self) -> bool:
        """Whether nothing is raised."""
        return self.delta == 0

    def chances(self, spot: Spot) -> Chances:
        """The ratios of the raised laws."""
        return ratio_chances(spot, self.raised)

    def raised(self, p: Tensor, token: int) -> Tensor:
        """[V] the law with h at the token and p (1 - h) / (1 - p(x)) elsewhere. p: [V], of sum 1.

        h = min(1, p(x) + sqrt(2 delta p(x) (1 - p(x)))), arXiv:2604.04987.
        """
        old = min(1.0, float(p[token]))
        new = min(1.0, old + math.sqrt(2 * self.delta * old * (1 - old)))
        if new == old:
            return p
        law = p * ((1 - new) / (1 - old))
        law[token] = new
        return law
