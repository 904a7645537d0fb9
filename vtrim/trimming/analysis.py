"""What a draft vocabulary does and does not contain: questions about one size k of a curve.

The questions that need whole conversations are in ``analysis_heldout``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from vtrim.trimming.analysis_heldout import (
    WITHIN,
    FirstMiss,
    HeldoutInterval,
    first_miss,
    heldout_band,
    heldout_interval,
    miss_shares,
)
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.curve import Counts, CoverageCurve

__all__ = [
    "WITHIN",
    "Boundary",
    "FirstMiss",
    "ForcedEffect",
    "HeldoutInterval",
    "SourceCoverage",
    "TokenCount",
    "by_source",
    "covered_share",
    "cross_coverage",
    "first_miss",
    "forced_effect",
    "generated_coverage",
    "heldout_band",
    "heldout_interval",
    "miss_shares",
    "near_boundary",
]


@dataclass(frozen=True, slots=True)
class TokenCount:
    """A target id and how often it was counted."""

    token: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCoverage:
    """One source of the data. share: of all counted tokens; coverage: C(k) on its tokens alone."""

    name: str
    tokens: int
    share: float
    coverage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Tokens on both sides of the edge of a vocabulary, in seat order.

    inside: the last that have a seat, forced ones left out; outside: the first that have none.
    """

    inside: tuple[TokenCount, ...]
    outside: tuple[TokenCount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedEffect:
    """What the forced tokens changed in a vocabulary of k.

    admitted: forced tokens whose counts alone would not have given them a seat, in the order they
    were forced. pushed_out: the tokens that would sit there, the most frequent first. lost: share
    of the counted tokens that this costs.
    """

    admitted: tuple[TokenCount, ...]
    pushed_out: tuple[TokenCount, ...]
    lost: float


def covered_share(ids: Iterable[int], counts: Counts) -> float | None:
    """Share of counted tokens that a set of distinct target ids covers; None when none was."""
    total = int(counts.sum())
    if not total:
        return None
    chosen = np.fromiter(ids, dtype=np.int64)
    return int(counts[chosen[chosen < counts.size]].sum()) / total


def by_source(coverage: Coverage, curve: CoverageCurve, k: int) -> list[SourceCoverage]:
    """C(k) by source, the largest source first; empty where sources were not told apart.

    The vocabulary is that of all data together, so this shows whom it serves badly.
    """
    seats = curve.order[:k]
    found = [
        SourceCoverage(
            name=name,
            tokens=tokens,
            share=tokens / coverage.total,
            coverage=int(counts[seats].sum()) / tokens,
        )
        for name, counts in (coverage.by_source or {}).items()
        if (tokens := int(counts.sum()))
    ]
    return sorted(found, key=lambda source: (-source.tokens, source.name))


def generated_coverage(coverage: Coverage, curve: CoverageCurve, k: int) -> float | None:
    """C(k) on text that the target wrote, which chose no seat; None where none was counted."""
    if coverage.generated_counts is None:
        return None
    return covered_share(curve.order[:k], coverage.generated_counts)


def near_boundary(curve: CoverageCurve, k: int, n: int) -> Boundary:
    """The n last tokens inside a vocabulary of k and the n first outside, with their counts."""
    inside = curve.order[max(curve.num_forced, k - n) : k]
    return Boundary(
        inside=_with_counts(curve, inside), outside=_with_counts(curve, curve.order[k : k + n])
    )


def forced_effect(curve: CoverageCurve, k: int) -> ForcedEffect:
    """What the forced tokens changed against the k most frequent tokens."""
    by_count = replace(curve, forced_ids=())
    seats, others = curve.order[:k], by_count.order[:k]
    return ForcedEffect(
        admitted=_with_counts(curve, seats[~np.isin(seats, others)]),
        pushed_out=_with_counts(curve, others[~np.isin(others, seats)]),
        lost=by_count.coverage(k) - curve.coverage(k),
    )


def cross_coverage(
    curves: Mapping[str, CoverageCurve], sizes: Mapping[str, int]
) -> dict[str, dict[str, float | None]]:
    """``[a][b]``: share of the tokens of domain b that the vocabulary of domain a covers.

    Domain a keeps its first ``sizes[a]`` seats. ``[a][a]`` is C(k) in sample.
    """
    return {
        name: {
            other: covered_share(curve.order[: sizes[name]], text.counts)
            for other, text in curves.items()
        }
        for name, curve in curves.items()
    }


def _with_counts(curve: CoverageCurve, ids: Counts) -> tuple[TokenCount, ...]:
    return tuple(TokenCount(int(token), int(curve.counts[token])) for token in ids)
