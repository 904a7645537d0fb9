"""The utility of arXiv:2603.05210, in exact fractions: U(k) = alpha C(k) + (1 - alpha) R(k).

C is the coverage of the counted reply tokens; R the share of the draft's FLOPs that a head of k
rows saves.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from vtrim.trimming.objective import Objective

PLATEAU = Fraction(1, 1000)  # sizes this close in utility are as good as equal


@dataclass(frozen=True, kw_only=True, eq=False)
class UtilityObjective(Objective):
    """The paper's trade of coverage against saved FLOPs."""

    name = "utility"
    unit = "utility"

    def value(self, k: int) -> Fraction:
        """U(k), exactly."""
        return self.utility(k)

    def optimum(self, *, floor: bool = True) -> int:
        """The k of the highest utility that holds the floor (if asked); the smaller one on ties.

        Raises:
            OptionError: no allowed size holds the floor.
        """
        return utility_optimum(self, self.alpha, floor=floor)

    def plateau(self, k: int, tolerance: Fraction = PLATEAU) -> tuple[int, int]:
        """The smallest and largest feasible size whose utility is within ``tolerance`` of U(k)."""
        return self._plateau_of_a_peak(k, tolerance)


@dataclass(frozen=True, kw_only=True, eq=False)
class BudgetObjective(Objective):
    """The smallest vocabulary of a given coverage: the most FLOPs saved above the floor."""

    name = "budget"
    unit = "share of FLOPs saved"

    def value(self, k: int) -> Fraction:
        """R(k), exactly."""
        return self.flops_reduction(k)

    def optimum(self, *, floor: bool = True) -> int:
        """The smallest k that holds the floor (the smallest of all if none is asked).

        Raises:
            OptionError: no allowed size holds the floor.
        """
        return self.smallest_feasible() if floor else self.kmin

    def plateau(self, k: int, tolerance: Fraction = PLATEAU) -> tuple[int, int]:
        """The sizes from ``k`` on that save at most ``tolerance`` fewer FLOPs."""
        return self._plateau_of_a_peak(k, tolerance)


def utility_optimum(sizes: Objective, alpha: Fraction, *, floor: bool = True) -> int:
    """The k of the highest utility at ``alpha``; the smaller one on ties.

    C is concave after the forced seats and R is affine, so a token is worth its seat iff
    alpha * n * F(V) > (1 - alpha) * 2d * N, whatever the other tokens are: no size but the
    optimum has to be looked at, and no fraction is rounded.

    Raises:
        OptionError: no allowed size holds the floor.
    """
    first = sizes.curve.num_forced
    # forced seats hold k up already: kmin is at least their number
    worth = first + _num_above(
        sizes.curve.seat_counts[first:],
        gain=alpha * sizes.flops_full,
        price=(1 - alpha) * sizes.flops_per_row * sizes.curve.total,
    )
    least = sizes.smallest_feasible() if floor else sizes.kmin
    return min(max(worth, least), sizes.kmax)


def _num_above(falling: npt.NDArray[np.int64], *, gain: Fraction, price: Fraction) -> int:
    """How many leading counts n have gain * n > price, the counts never rising."""
    if gain == 0 or falling.size == 0:
        return 0
    threshold = price // gain  # for an integer n: gain * n > price iff n > floor(price / gain)
    if threshold >= int(falling[0]):
        return 0
    # negated, the counts rise: those strictly below -threshold come first
    return bisect_left(falling, -threshold, key=lambda counted: -int(counted))
