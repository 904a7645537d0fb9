"""What to expect of a draft vocabulary on conversations that were never counted.

All of it reads the held-out sample, with seats that the other rows alone order, as
``CoverageCurve.heldout_covered`` does. The unit is a distinct conversation: its copies in the data
count as its weight, because the split sends all of them to one side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from vtrim.trimming.coverage import Coverage
from vtrim.trimming.curve import Counts, CoverageCurve
from vtrim.trimming.sample import HeldoutSample

RESAMPLES = 1000
WITHIN = (16, 64, 256, 1024)
_BLOCK = 250  # resamples at once, so that memory stays small

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldoutInterval:
    """Bootstrap interval of held-out C(k).

    conversations: distinct ones in the sample. resampled: how many each resample draws, the
    number of distinct held-out conversations; estimated where the sample does not hold all.
    """

    low: float
    high: float
    level: float
    conversations: int
    resampled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstMiss:
    """When held-out conversations first meet a token that the vocabulary lacks.

    within: N to the share of conversations that do among their first N reply tokens. Every
    conversation is in the denominator, a shorter one with the tokens it has. never: the share
    that meets none. tokens_before: mean number of reply tokens before the first miss, all tokens
    of a conversation without one. tokens_per_miss: reply tokens for each missing one; None if
    none is missing. conversations: distinct ones looked at.
    """

    within: dict[int, float]
    never: float
    tokens_before: float
    tokens_per_miss: float | None
    conversations: int


def heldout_interval(
    coverage: Coverage,
    curve: CoverageCurve,
    k: int,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> HeldoutInterval | None:
    """Interval of held-out C(k) over conversations; None without two to resample."""
    band = heldout_band(coverage, curve, [k], level=level, resamples=resamples, seed=seed)
    return band[0] if band else None


def heldout_band(
    coverage: Coverage,
    curve: CoverageCurve,
    sizes: Sequence[int],
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[HeldoutInterval]:
    """Interval of held-out C(k) at each size; empty without two conversations to resample.

    A percentile bootstrap of the ratio covered / all. It is moved to the exact held-out C(k),
    from which the sample's differs where the sample does not hold every held-out token.
    """
    sample = coverage.sample
    if sample.size < 2 or not sample.ids.size:
        return []
    covered = _covered(sample, curve, np.asarray(sizes)) * sample.times[:, None]
    tokens = sample.lengths * sample.times
    draws = max(sample.size, round(sample.size * coverage.rows_heldout / sample.times.sum()))
    shares = _resampled(covered, tokens, draws, resamples, seed)
    tail = (1 - level) / 2
    low, high = np.quantile(shares, [tail, 1 - tail], axis=0)
    exact = [curve.heldout_coverage(k) or 0.0 for k in sizes]
    moved = np.array(exact) - covered.sum(axis=0) / tokens.sum()
    return [
        HeldoutInterval(
            low=float(a), high=float(b), level=level, conversations=sample.size, resampled=draws
        )
        for a, b in np.clip(np.stack([low, high], axis=1) + moved[:, None], 0, 1)
    ]


def first_miss(
    coverage: Coverage, curve: CoverageCurve, k: int, within: Sequence[int] = WITHIN
) -> FirstMiss | None:
    """When held-out conversations first meet a missing token; None without a sample."""
    sample = _nonempty(coverage.sample)
    if not sample.size:
        return None
    missing = _seats(sample, curve) >= k
    starts, places = _places(sample)
    before = np.minimum.reduceat(np.where(missing, places, np.iinfo(np.int64).max), starts)
    times, rows = sample.times, int(sample.times.sum())
    misses = int(times @ np.add.reduceat(missing.astype(np.int64), starts))
    return FirstMiss(
        within={n: int(times @ (before < n)) / rows for n in within},
        never=int(times @ (before >= sample.lengths)) / rows,
        tokens_before=int(times @ np.minimum(before, sample.lengths)) / rows,
        tokens_per_miss=int(times @ sample.lengths) / misses if misses else None,
        conversations=sample.size,
    )


def miss_shares(
    coverage: Coverage, curve: CoverageCurve, sizes: Sequence[int], within: Sequence[int] = WITHIN
) -> Floats | None:
    """[len(within), len(sizes)] ``FirstMiss.within`` at many sizes; None without a sample.

    A vocabulary of k misses among the first N tokens iff the last seat among them is k or later.
    """
    sample = _nonempty(coverage.sample)
    if not sample.size:
        return None
    seats = _seats(sample, curve)
    starts, places = _places(sample)
    last = [np.maximum.reduceat(np.where(places < n, seats, -1), starts) for n in within]
    rows = [sample.times @ (seat[:, None] >= np.asarray(sizes)) for seat in last]
    shares: Floats = np.stack(rows) / sample.times.sum()
    return shares


def _seats(sample: HeldoutSample, curve: CoverageCurve) -> Counts:
    """[sum of lengths] seat of each token when the other rows order them; beyond all: no seat."""
    order = replace(curve, counts=curve.counts - curve.heldout_counts).order
    seat_of = np.full(curve.counts.size, curve.counts.size, dtype=np.int64)
    seat_of[order] = np.arange(order.size)
    return seat_of[sample.ids]


def _covered(sample: HeldoutSample, curve: CoverageCurve, sizes: Counts) -> Counts:
    """[M, K] tokens of each conversation that a vocabulary of each size covers."""
    ascending, back = np.unique(sizes, return_inverse=True)
    first = np.searchsorted(ascending, _seats(sample, curve), side="right")  # smallest size with it
    owner = np.repeat(np.arange(sample.size), sample.lengths)
    width = ascending.size + 1
    counted = np.bincount(owner * width + first, minlength=sample.size * width)
    covered: Counts = counted.reshape(sample.size, width).cumsum(axis=1)[:, back]
    return covered


def _resampled(covered: Counts, tokens: Counts, draws: int, resamples: int, seed: int) -> Floats:
    """[resamples, K] covered share of ``draws`` conversations drawn with replacement.

    Products and sums are of integers below 2^53, so they are exact in floats whatever the order.
    """
    random = np.random.default_rng(seed)
    chances = np.full(tokens.size, 1 / tokens.size)
    both = np.column_stack([covered, tokens]).astype(np.float64)
    blocks = []
    for start in range(0, resamples, _BLOCK):
        times = random.multinomial(draws, chances, size=min(_BLOCK, resamples - start))
        sums = times.astype(np.float64) @ both
        blocks.append(sums[:, :-1] / np.maximum(sums[:, -1:], 1))
    return np.concatenate(blocks)


def _nonempty(sample: HeldoutSample) -> HeldoutSample:
    """The conversations that hold a reply token."""
    full = sample.lengths > 0
    return replace(
        sample, keys=sample.keys[full], times=sample.times[full], lengths=sample.lengths[full]
    )


def _places(sample: HeldoutSample) -> tuple[Counts, Counts]:
    """[M] where each conversation starts, and [sum of lengths] each token's place in its own."""
    starts = np.cumsum(sample.lengths) - sample.lengths
    return starts, np.arange(sample.ids.size) - np.repeat(starts, sample.lengths)
