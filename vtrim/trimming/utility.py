"""What the search maximises, in exact fractions: U(k) = alpha C(k) + (1 - alpha) R(k).

Source: arXiv:2603.05210. C is the coverage of the counted reply tokens; R the share of the
draft's FLOPs that a head of k rows saves.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from vtrim.errors import OptionError
from vtrim.trimming.curve import CoverageCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One vocabulary size and what it gives; shares of 1."""

    k: int
    coverage: float
    flops_reduction: float
    utility: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Objective:
    """The utility of every size, its floor and its range.

    flops_full: F(V), the draft with the whole target vocabulary [FLOPs]. flops_per_row: what one
    row of the LM head adds [FLOPs]. kmin..kmax: sizes allowed, ends included.
    """

    curve: CoverageCurve
    target_vocab_size: int
    flops_full: int
    flops_per_row: int
    alpha: Fraction
    cmin: Fraction
    kmin: int
    kmax: int

    def coverage(self, k: int) -> Fraction:
        """C(k), exactly."""
        return Fraction(self.curve.covered(k), self.curve.total)

    def flops(self, k: int) -> int:
        """F(k), one draft token with a head of k rows [FLOPs]."""
        return self.flops_full - self.flops_per_row * (self.target_vocab_size - k)

    def flops_reduction(self, k: int) -> Fraction:
        """R(k) = 1 - F(k) / F(V), exactly."""
        return 1 - Fraction(self.flops(k), self.flops_full)

    def utility(self, k: int) -> Fraction:
        """U(k), exactly."""
        return self.alpha * self.coverage(k) + (1 - self.alpha) * self.flops_reduction(k)

    def point(self, k: int) -> Point:
        """Everything about one size, rounded to floats."""
        return Point(
            k=k,
            coverage=float(self.coverage(k)),
            flops_reduction=float(self.flops_reduction(k)),
            utility=float(self.utility(k)),
        )

    def smallest_feasible(self) -> int:
        """The smallest allowed k that holds the floor.

        Raises:
            OptionError: no allowed size does; names the best coverage that one reaches.
        """
        floor = self.curve.smallest_k(self.cmin)
        if floor is not None and floor <= self.kmax:
            return max(self.kmin, floor)
        best = Fraction(int(self.coverage(self.kmax) * 10**6), 10**6)  # never rounded up
        seats = f", {self.curve.num_forced} of them forced tokens" if self.curve.num_forced else ""
        raise OptionError(
            f"--cmin {float(self.cmin):g} cannot be reached: the best coverage is {float(best):g} "
            f"(k {self.kmax}{seats}). {self._remedy(floor, float(best))}"
        )

    def optimum(self, *, floor: bool = True) -> int:
        """The k of the highest utility that holds the floor (if asked); the smaller one on ties.

        C is concave after the forced seats and R is affine, so a token is worth its seat iff
        alpha * n * F(V) > (1 - alpha) * 2d * N, whatever the other tokens are: no size but the
        optimum has to be looked at, and no fraction is rounded.

        Raises:
            OptionError: no allowed size holds the floor.
        """
        first = self.curve.num_forced
        # forced seats hold k up already: kmin is at least their number
        worth = first + _num_above(
            self.curve.seat_counts[first:],
            gain=self.alpha * self.flops_full,
            price=(1 - self.alpha) * self.flops_per_row * self.curve.total,
        )
        least = self.smallest_feasible() if floor else self.kmin
        return min(max(worth, least), self.kmax)

    def plateau(self, k: int, tolerance: Fraction) -> tuple[int, int]:
        """The smallest and largest feasible size whose utility is within ``tolerance`` of U(k).

        Left and right of an optimum ``k`` the utility never rises, so both ends are bisected.
        """
        enough = self.utility(k) - tolerance
        left = range(self.smallest_feasible(), k + 1)
        right = range(k, self.kmax + 1)
        low = left[bisect_left(left, True, key=lambda size: self.utility(size) >= enough)]
        high = bisect_left(right, True, key=lambda size: self.utility(size) < enough)
        return low, right[high - 1]

    def _remedy(self, floor: int | None, best: float) -> str:
        if floor is None:
            return f"Lower --cmin to {best:g} or below."
        return f"Lower --cmin, or raise --kmax to {floor} or more."


def _num_above(falling: npt.NDArray[np.int64], *, gain: Fraction, price: Fraction) -> int:
    """How many leading counts n have gain * n > price, the counts never rising."""
    if gain == 0 or falling.size == 0:
        return 0
    threshold = price // gain  # for an integer n: gain * n > price iff n > floor(price / gain)
    if threshold >= int(falling[0]):
        return 0
    # negated, the counts rise: those strictly below -threshold come first
    return int(np.searchsorted(-falling, -threshold, side="left"))
