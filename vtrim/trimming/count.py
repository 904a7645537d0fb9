"""Counts of reply tokens from a stream of sequences: exact integers, memory flat in the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from vtrim.errors import InputError
from vtrim.trimming.sample import SampleBuilder
from vtrim.trimming.sources import MAX_SOURCES, BySource, tidy_sources

Ids = npt.NDArray[np.int64]
Weights = npt.NDArray[np.int64] | npt.NDArray[np.bool_]

# ids [T]; how often each counts, True on reply tokens, or None (each once); held out; source
Counted = tuple[Ids, Weights | None, bool, str | None]


class Tally:
    """Counts by id: of all samples, of the held-out ones, and by source."""

    def __init__(self, vocab_size: int) -> None:
        self.sample = SampleBuilder()
        self._size = vocab_size
        self._parts: dict[tuple[str, bool], Ids] = defaultdict(self._zeros)
        self._too_many = False

    def update(self, items: Iterable[Counted]) -> Tally:
        """Counts every item.

        Raises:
            InputError: an id has no row in a vocabulary of that size.
        """
        for ids, weights, heldout, *source in items:
            self.add(ids, weights, heldout, source[0] if source else None)
        return self

    def add(self, ids: Ids, weights: Weights | None, heldout: bool, source: str | None) -> None:
        """Counts ``ids``, each as often as ``weights`` says.

        Raises:
            InputError: as ``update``.
        """
        if weights is not None and weights.dtype == np.bool_:
            ids, weights = ids[weights], None
        if not ids.size:
            return
        if ids.min() < 0 or ids.max() >= self._size:
            wrong = int(ids.max()) if ids.max() >= self._size else int(ids.min())
            raise InputError(
                f"token id {wrong} has no row in the target's head of {self._size} rows. "
                "Tokenizer and target config belong to different models."
            )
        counts = self._parts[self._name(source), heldout]
        np.add.at(counts, ids, 1 if weights is None else weights)

    @property
    def counts(self) -> Ids:
        """[V] counts of all items."""
        return sum(self._parts.values(), start=self._zeros())

    @property
    def heldout_counts(self) -> Ids:
        """[V] counts of the held-out items."""
        held = (counts for (_, heldout), counts in self._parts.items() if heldout)
        return sum(held, start=self._zeros())

    @property
    def by_source(self) -> BySource:
        """Counts by source; None where there are more than 32."""
        if self._too_many:
            return None
        found: dict[str, Ids] = {}
        for (name, _), counts in self._parts.items():
            found[name] = found[name] + counts if name in found else counts
        return tidy_sources(found)

    def _name(self, source: str | None) -> str:
        """The source under which an item counts: none once there are too many to hold."""
        name = "" if source is None or self._too_many else source
        if (name, True) in self._parts or (name, False) in self._parts or not name:
            return name
        if len({known for known, _ in self._parts} | {name}) > MAX_SOURCES:
            self._too_many = True
            self._pool()
            return ""
        return name

    def _pool(self) -> None:
        """Adds all sources up."""
        parts = list(self._parts.items())
        self._parts.clear()
        for (_, heldout), counts in parts:
            self._parts["", heldout] += counts

    def _zeros(self) -> Ids:
        return np.zeros(self._size, dtype=np.int64)
