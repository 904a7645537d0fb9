"""Counts by source column, stored as the ids that were seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
# name of the source (empty: rows without one) to its counts; None: more than MAX_SOURCES names
BySource = Mapping[str, Counts] | None

MAX_SOURCES = 32


def merge_sources(one: BySource, other: BySource, totals: tuple[Counts, Counts]) -> BySource:
    """Counts by source of two data sets; ``totals`` are all counts of each."""
    if one is None or other is None:
        return None
    merged: dict[str, Counts] = {}
    for part, total in zip((one, other), totals, strict=True):
        named = part or ({"": total} if total.any() else {})
        for name, counts in named.items():
            merged[name] = merged[name] + counts if name in merged else counts
    return tidy_sources(merged)


def tidy_sources(by_source: Mapping[str, Counts]) -> BySource:
    """None beyond 32 names; empty where no row named one; else in name order."""
    if len(by_source) > MAX_SOURCES:
        return None
    if set(by_source) <= {""}:
        return {}
    return {name: by_source[name] for name in sorted(by_source)}


def source_arrays(by_source: BySource) -> dict[str, Counts]:
    """The arrays of an artefact that hold counts by source."""
    parts = list((by_source or {}).values())
    seen = [np.flatnonzero(counts) for counts in parts]
    nothing = [np.zeros(0, dtype=np.int64)]
    return {
        "source_sizes": np.array([ids.size for ids in seen], dtype=np.int64),
        "source_ids": np.concatenate(nothing + seen),
        "source_counts": np.concatenate(
            nothing + [counts[ids] for counts, ids in zip(parts, seen, strict=True)]
        ),
    }


def sources_of(
    arrays: Mapping[str, Counts], names: Sequence[str] | None, vocab_size: int
) -> BySource:
    """Counts by source from an artefact's arrays.

    Raises:
        ValueError: names and arrays do not fit together, or an id has no row.
    """
    if names is None:
        return None
    ends = np.cumsum(arrays["source_sizes"])[:-1]
    found = {}
    pairs = zip(
        names,
        np.split(arrays["source_ids"], ends) if names else [],
        np.split(arrays["source_counts"], ends) if names else [],
        strict=True,
    )
    for name, ids, values in pairs:
        if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size:
            raise ValueError(f"ids of source {name!r}")
        counts = np.zeros(vocab_size, dtype=np.int64)
        counts[ids] = values
        found[name] = counts
    return found
