"""What helps to defend a size: named points of the coverage-cost front, and k* over alpha.

Every size up to the last counted token is Pareto-optimal: one more row covers more and costs more.
So the front is the curve itself, and a few points of it are named.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from vtrim.trimming.objective import Objective
from vtrim.trimming.utility import PLATEAU, utility_optimum

SHARES = ("0.9", "0.95", "0.98", "0.99", "0.995")
ALPHAS = tuple(Fraction(tenths, 10) for tenths in range(1, 10))


def pareto(objective: Objective, named: dict[str, int]) -> dict[str, Any]:
    """The named points of the front: ``named`` sizes, coverage marks and the knee, k ascending.

    front_end: sizes above it cover nothing more, so each of them is dominated. Marks that no
    vocabulary reaches are left out; feasible: inside the range and the floor.
    """
    curve = objective.curve
    feasible = range(objective.smallest_feasible(), objective.kmax + 1)
    sizes = {f"C {share}": curve.smallest_k(share) for share in SHARES}
    sizes["knee"] = knee(objective)
    found = [(k, name) for name, k in {**sizes, **named}.items() if k]
    points = []
    for k, name in sorted(found):
        point = objective.point(k)
        points.append(
            {
                "name": name,
                "k": k,
                "coverage": point.coverage,
                "heldout_coverage": curve.heldout_coverage(k),
                "flops_reduction": point.flops_reduction,
                "utility": point.utility,
                "value": point.value,
                "feasible": k in feasible,
            }
        )
    return {"front_end": objective.front_end, "knee": sizes["knee"], "points": points}


def knee(objective: Objective) -> int:
    """The size farthest above the chord from the forced seats to the front's end.

    From there on a row covers less than the average row does; the smaller size on ties.
    """
    covered = objective.curve.running_covered
    first, last = objective.curve.num_forced, objective.front_end
    if last <= first:
        return max(last, 1)
    rise, run = int(covered[last] - covered[first]), last - first
    part = covered[first : last + 1] - covered[first]
    if run * int(part[-1]) >= 2**62:
        part = part.astype(object)  # beyond 64 bits: slow, exact integers
    above = part * run - rise * np.arange(run + 1, dtype=part.dtype)
    return max(first + int(np.argmax(above)), 1)


def alpha_curve(objective: Objective, k: int) -> dict[str, Any]:
    """k*(alpha) with the floor, and the alphas at which ``k`` is as good as the best.

    interval: every alpha in it leaves U(k) within ``tolerance`` of the best feasible utility; None
    where there is no such alpha.
    """
    rows = []
    for alpha in ALPHAS:
        best = utility_optimum(objective, alpha)
        rows.append(
            {
                "alpha": float(alpha),
                "k": best,
                "coverage": float(objective.coverage(best)),
                "flops_reduction": float(objective.flops_reduction(best)),
                "floor_binds": best > utility_optimum(objective, alpha, floor=False),
            }
        )
    interval = _good_alphas(objective, k)
    return {"rows": rows, "interval": interval, "tolerance": float(PLATEAU)}


def _good_alphas(objective: Objective, k: int) -> list[float] | None:
    """The alphas at which no feasible size beats ``k`` by more than the tolerance.

    For each other size that is one linear inequality in alpha, so they leave an interval.
    """
    curve, tolerance = objective.curve, float(PLATEAU)
    least = min(objective.smallest_feasible(), k)
    sizes = np.arange(least, objective.kmax + 1)
    covered = curve.running_covered[least : objective.kmax + 1]
    coverage = (covered - curve.covered(k)) / curve.total
    reduction = (k - sizes) * (objective.flops_per_row / objective.flops_full)
    slope, room = coverage - reduction, tolerance - reduction  # alpha * slope <= room
    rising, falling = slope > 0, slope < 0
    high = np.min(room[rising] / slope[rising], initial=1.0)
    low = np.max(room[falling] / slope[falling], initial=0.0)
    return [float(low), float(high)] if low <= high else None
