"""What prompts drawn anew, in pairs, say of a number: intervals and p-values; no model here.

A number is a value of sums over prompts (tokens over rounds, tokens over seconds). Turns of one
conversation are no independent witnesses, so what has one group is drawn together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Parts = Sequence[tuple[float, ...]]
"""The summands of each prompt, a column each."""
Value = Callable[..., Floats]
"""From the columns' sums, an array a column, the number."""
Groups = Sequence[Hashable] | None
"""What each prompt belongs to; None: each stands for itself."""

MIN_PROMPTS = 5
"""Fewer prompts are too few to say."""
_RESAMPLES = 2000
_EXACT_UP_TO = 12  # prompts whose 2**n swaps are all looked at
_SWAPS = 9999  # drawn at random beyond
_CHUNK = 500  # of them at a time: bounded memory


def paired_interval(
    parts: Parts, value: Value, groups: Groups = None
) -> tuple[float, float] | None:
    """95 % bootstrap interval of a value of sums over prompts: prompts drawn anew, in pairs.

    None below 5 groups of prompts.
    """
    table = _grouped(parts, groups)
    if len(table) < MIN_PROMPTS:
        return None
    draws = np.random.default_rng(0).integers(len(table), size=(_RESAMPLES, len(table)))
    with np.errstate(divide="ignore", invalid="ignore"):
        values = value(*(column[draws].sum(axis=1) for column in table.T))
    values = values[np.isfinite(values)]
    if not values.size:
        return None
    low, high = np.quantile(values, (0.025, 0.975)).tolist()
    return low, high


def interval_between(
    a: Parts, b: Parts, value: Value, against: Value, groups: Groups = None
) -> tuple[float, float] | None:
    """95 % interval of ``against(b's value, a's value)``: the same prompts are drawn for both."""

    def both(*sums: Floats) -> Floats:
        half = len(sums) // 2
        return against(value(*sums[half:]), value(*sums[:half]))

    return paired_interval([(*x, *y) for x, y in zip(a, b, strict=True)], both, groups)


def paired_p_value(a: Parts, b: Parts, value: Value, groups: Groups = None) -> float | None:
    """How often a difference this large comes about when nothing but chance tells a from b.

    Two-sided paired permutation test: within each prompt (group) the two trade places or not, all
    2**n ways up to 12 prompts, else 9,999 drawn ones and the one that was measured. None without
    a difference to test.
    """
    first, second = _grouped(a, groups), _grouped(b, groups)
    observed = _difference(first.sum(axis=0)[None], second.sum(axis=0)[None], value)
    if not observed.size or not np.isfinite(observed[0]):
        return None
    least = abs(float(observed[0])) * (1 - 1e-9)  # equal but for rounding counts as equal
    hits = total = 0
    for swaps in _swaps(len(first)):
        moved = swaps @ (second - first)
        differences = _difference(first.sum(axis=0) + moved, second.sum(axis=0) - moved, value)
        hits += int((np.abs(differences) >= least).sum())
        total += len(swaps)
    if len(first) <= _EXACT_UP_TO:
        return hits / total
    return (hits + 1) / (total + 1)


def _swaps(count: int) -> list[Floats]:
    """[n, count] rows of 0 and 1: which prompts trade places, in chunks."""
    if count <= _EXACT_UP_TO:
        every = np.arange(2**count)[:, None] >> np.arange(count)
        return [(every & 1).astype(np.float64)]
    random = np.random.default_rng(0)
    sizes = [min(_CHUNK, _SWAPS - start) for start in range(0, _SWAPS, _CHUNK)]
    return [random.integers(2, size=(size, count)).astype(np.float64) for size in sizes]


def _difference(first: Floats, second: Floats, value: Value) -> Floats:
    """[n] the value of b less that of a. first, second: [n, columns] sums."""
    with np.errstate(divide="ignore", invalid="ignore"):
        difference: Floats = value(*second.T) - value(*first.T)
    return difference


def _grouped(parts: Parts, groups: Groups) -> Floats:
    """[groups, columns] the summands, those of one group added up."""
    table = np.array(parts, dtype=np.float64)
    if groups is None or not len(table):
        return table
    places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    summed = np.zeros((len(places), table.shape[1]))
    np.add.at(summed, [places[group] for group in groups], table)
    return summed
