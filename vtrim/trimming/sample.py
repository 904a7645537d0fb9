"""Held-out conversations kept whole: what a bootstrap and first-miss statistics need.

Kept are those of the smallest content keys (a bottom-k sample): the choice depends neither on the
order of rows nor on how the data was split, and samples of parts merge to the sample of the whole.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vtrim.errors import InputError

Ids = npt.NDArray[np.int64]

MAX_CONVERSATIONS = 2000
MAX_TOKENS = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldoutSample:
    """Reply ids of sampled held-out conversations, ascending by content key.

    keys: [M] distinct content keys. times: [M] how often that conversation stands in the data.
    lengths: [M] reply tokens kept of it, the first 4,096 at most. ids: [sum of lengths] those.
    """

    keys: Ids
    times: Ids
    lengths: Ids
    ids: Ids

    def __post_init__(self) -> None:
        """Refuses arrays that do not fit together.

        Raises:
            InputError: no lists, other lengths, keys that do not rise, or a count below 1.
        """
        size = self.keys.size
        lists = (self.keys, self.times, self.lengths, self.ids)
        whole = all(one.ndim == 1 and one.dtype.kind in "iu" for one in lists)
        whole = whole and not np.any(self.lengths < 0)
        whole = (
            whole
            and self.times.size == self.lengths.size == size
            and self.lengths.sum() == self.ids.size
        )
        if not whole or np.any(np.diff(self.keys) <= 0) or np.any(self.times < 1):
            raise InputError("coverage: the held-out sample is not whole.")

    @classmethod
    def empty(cls) -> HeldoutSample:
        """No conversation."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(keys=nothing, times=nothing, lengths=nothing, ids=nothing)

    @property
    def size(self) -> int:
        """Number of distinct conversations, M."""
        return int(self.keys.size)

    def conversations(self) -> Iterator[Ids]:
        """The reply ids of each conversation, in key order."""
        yield from np.split(self.ids, np.cumsum(self.lengths)[:-1]) if self.size else ()

    def merge(self, other: HeldoutSample) -> HeldoutSample:
        """The sample of both data sets together."""
        builder = SampleBuilder()
        for part in (self, other):
            for key, times, ids in zip(part.keys, part.times, part.conversations(), strict=True):
                builder.put(int(key), int(times), ids)
        return builder.build()


class SampleBuilder:
    """Collects held-out conversations and keeps those of the smallest keys."""

    def __init__(self, max_conversations: int = MAX_CONVERSATIONS) -> None:
        self._limit = max_conversations
        self._kept: dict[int, tuple[int, Ids]] = {}
        self._largest: list[int] = []  # a heap of negated keys

    def wants(self, key: int) -> bool:
        """Whether a conversation of this key would be kept; asked before its ids are made."""
        full = len(self._kept) >= self._limit
        return not full or key in self._kept or key < -self._largest[0]

    def add(self, key: int, ids: Ids) -> None:
        """Takes in one conversation's reply ids."""
        self.put(key, 1, ids[:MAX_TOKENS])

    def put(self, key: int, times: int, ids: Ids) -> None:
        """The same for a conversation that stands ``times`` times in the data."""
        if not self.wants(key):
            return
        known = self._kept.get(key)
        if known is not None:
            # equal messages may bear different recorded ids: the smaller list, in any order
            ids = min(known[1], ids, key=lambda value: value.tolist())
            self._kept[key] = (known[0] + times, ids)
            return
        self._kept[key] = (times, np.array(ids, dtype=np.int64))
        heapq.heappush(self._largest, -key)
        if len(self._kept) > self._limit:
            del self._kept[-heapq.heappop(self._largest)]

    def build(self) -> HeldoutSample:
        """The sample."""
        keys = sorted(self._kept)
        rows = [self._kept[key] for key in keys]
        lists = [ids for _, ids in rows]
        return HeldoutSample(
            keys=np.array(keys, dtype=np.int64),
            times=np.array([times for times, _ in rows], dtype=np.int64),
            lengths=np.array([ids.size for ids in lists], dtype=np.int64),
            ids=np.concatenate(lists) if lists else np.zeros(0, dtype=np.int64),
        )


def sample_arrays(sample: HeldoutSample) -> dict[str, Ids]:
    """The arrays of an artefact that hold a sample."""
    return {
        "sample_ids": sample.ids,
        "sample_keys": sample.keys,
        "sample_lengths": sample.lengths,
        "sample_times": sample.times,
    }


def sample_of(arrays: Mapping[str, Ids]) -> HeldoutSample:
    """The sample in an artefact's arrays."""
    return HeldoutSample(
        keys=arrays["sample_keys"],
        times=arrays["sample_times"],
        lengths=arrays["sample_lengths"],
        ids=arrays["sample_ids"],
    )
