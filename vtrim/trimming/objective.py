"""What every search shares: the sizes allowed, what each covers and saves, and the floor.

One objective is one small class: ``UtilityObjective``, ``BudgetObjective``,
``ThroughputObjective``. Coverage and saved FLOPs are exact fractions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from vtrim.errors import OptionError
from vtrim.trimming.curve import CoverageCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One vocabulary size and what it gives; shares of 1, value in the objective's unit."""

    k: int
    coverage: float
    flops_reduction: float
    utility: float
    value: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Objective(ABC):
    """The sizes allowed, their floor, and the value to maximise over them.

    flops_full: F(V), the draft with the whole target vocabulary [FLOPs]. flops_per_row: what one
    row of the LM head adds [FLOPs]. alpha: weight of coverage in the utility, which every result
    shows. kmin..kmax: sizes allowed, ends included.
    """

    name: ClassVar[str]
    unit: ClassVar[str]

    curve: CoverageCurve
    target_vocab_size: int
    flops_full: int
    flops_per_row: int
    alpha: Fraction
    cmin: Fraction
    kmin: int
    kmax: int

    @abstractmethod
    def value(self, k: int) -> Fraction | float:
        """What is maximised, at one size."""

    @abstractmethod
    def optimum(self, *, floor: bool = True) -> int:
        """The best k that holds the floor (if asked); the smallest one on ties.

        Raises:
            OptionError: no allowed size holds the floor.
        """

    @abstractmethod
    def plateau(self, k: int) -> tuple[int, int]:
        """The smallest and largest feasible size around ``k`` that is as good for all purposes."""

    def settings(self) -> dict[str, Any]:
        """What decides the value besides the counts, as JSON values."""
        return {
            "objective": self.name,
            "alpha": str(self.alpha),
            "cmin": str(self.cmin),
            "kmin": self.kmin,
            "kmax": self.kmax,
            "forced": self.curve.forced,
            "flops_full": self.flops_full,
            "flops_per_row": self.flops_per_row,
            "target_vocab_size": self.target_vocab_size,
        }

    @property
    def num_sizes(self) -> int:
        """How many sizes are allowed."""
        return self.kmax - self.kmin + 1

    @property
    def front_end(self) -> int:
        """The largest size whose last seat still covers a token nothing before it covers."""
        covered = self.curve.running_covered
        return int(np.searchsorted(covered, covered[-1]))

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
        """U(k) = alpha C(k) + (1 - alpha) R(k), exactly (arXiv:2603.05210)."""
        return self.alpha * self.coverage(k) + (1 - self.alpha) * self.flops_reduction(k)

    def point(self, k: int) -> Point:
        """Everything about one size, rounded to floats."""
        return Point(
            k=k,
            coverage=float(self.coverage(k)),
            flops_reduction=float(self.flops_reduction(k)),
            utility=float(self.utility(k)),
            value=float(self.value(k)),
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

    def _remedy(self, floor: int | None, best: float) -> str:
        if floor is None:
            return f"Lower --cmin to {best:g} or below."
        return f"Lower --cmin, or raise --kmax to {floor} or more."

    def _plateau_of_a_peak(self, k: int, tolerance: Fraction) -> tuple[int, int]:
        """The feasible sizes around the best one ``k`` whose value is within ``tolerance`` of it.

        For values that never rise away from ``k``, so that both ends can be bisected.
        """
        enough = self.value(k) - tolerance
        left = range(min(self.smallest_feasible(), k), k + 1)
        right = range(k, self.kmax + 1)
        low = left[bisect_left(left, True, key=lambda size: self.value(size) >= enough)]
        high = bisect_left(right, True, key=lambda size: self.value(size) < enough)
        return low, right[high - 1]
