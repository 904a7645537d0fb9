"""Reply tokens without rendering: only the segment that holds a reply is encoded."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from vtrim.chat.encode import encode
from vtrim.chat.encoders import Encoder, Ids, Ragged
from vtrim.chat.frames import Frame
from vtrim.chat.words import Words

Weights = Ids | npt.NDArray[np.bool_]
# (ids, how often each counts or True on reply tokens or None for all, held out, source)
Counted = tuple[Ids, Weights | None, bool, str | None]
Reply = tuple[Frame, str]

_MAX_CHARACTERS = 1_000_000
_MAX_CHARACTERS_SPLIT = 24_000_000
_MAX_WORDS = 160_000
_MAX_GROUPS = 160
_MAX_WAITING = 1 << 15


class ReplySample(Protocol):
    """Keeps the reply ids of some held-out conversations."""

    def wants(self, key: int) -> bool:
        """Whether the conversation of this key would be kept."""

    def add(self, key: int, ids: Ids) -> None:
        """Takes in a conversation's reply ids, in order."""


@dataclass(slots=True, eq=False)
class _Group:
    """Replies of one source and split. firsts: by frame, the texts that begin a reply."""

    firsts: defaultdict[Frame, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    words: Counter[str] = field(default_factory=Counter)
    pending: list[str] = field(default_factory=list)

    def settle(self) -> int:
        """Counts the words that wait for it; number of distinct ones."""
        self.words.update(self.pending)
        self.pending.clear()
        return len(self.words)


@dataclass(frozen=True, slots=True, eq=False)
class _Sampled:
    """A conversation whose ids are wanted in order."""

    key: int
    source: str | None
    replies: list[Reply]


class FastReplies:
    """Collects replies and gives their ids in batches; memory stays flat.

    words: splits replies, so that each distinct word is encoded once; None: replies are encoded
    whole. characters: of all replies so far. straddling: tokens that cross the start of a reply.
    """

    def __init__(self, backend: Any, encoder: Encoder, words: Words | None) -> None:
        self.straddling = 0
        self.encoder = encoder
        self._backend = backend
        self._words = words
        self.characters = 0
        self._drained = self._waiting = 0
        self._crowded = False
        self._groups: defaultdict[tuple[bool, str | None], _Group] = defaultdict(_Group)
        self._sampled: list[_Sampled] = []

    def fresh(self) -> FastReplies:
        """The same way to count, with nothing taken in."""
        return FastReplies(self._backend, self.encoder, self._words)

    def add(self, replies: list[Reply], heldout: bool, source: str | None) -> None:
        """Takes in the replies of a conversation."""
        group = self._groups[heldout, source]
        words = self._words
        for frame, text in replies:
            self.characters += len(text)
            if words is None:
                group.firsts[frame][text] += 1
                continue
            first, *others = words.split(text)
            group.firsts[frame][first] += 1
            group.pending += others
            self._waiting += len(others)
        if self._waiting > _MAX_WAITING:
            self._waiting = 0
            distinct = sum([one.settle() for one in self._groups.values()])
            self._crowded = distinct > _MAX_WORDS

    def add_sampled(self, replies: list[Reply], key: int, source: str | None) -> None:
        """The same for a held-out conversation whose ids are wanted in order."""
        self.characters += sum(len(text) for _, text in replies)
        self._sampled.append(_Sampled(key, source, replies))

    @property
    def is_due(self) -> bool:
        """Whether so much is held that it should be drained."""
        limit = _MAX_CHARACTERS if self._words is None else _MAX_CHARACTERS_SPLIT
        held = self.characters - self._drained
        return held > limit or self._crowded or len(self._groups) > _MAX_GROUPS

    def drain(self, sample: ReplySample | None) -> Iterator[Counted]:
        """The ids of all that is held; ``sample`` gets those that were wanted in order."""
        self._drained, self._crowded, self._waiting = self.characters, False, 0
        yield from self._in_order(sample)
        for (heldout, source), group in self._groups.items():
            for frame, firsts in group.firsts.items():
                for ids, weights in self._replies(frame, firsts):
                    yield ids, weights, heldout, source
        yield from self._by_word()
        self._groups.clear()

    def _by_word(self) -> Iterator[Counted]:
        """The ids of all words, each encoded once for all groups."""
        if self._words is None:
            return
        sizes = [group.settle() for group in self._groups.values()]
        places: dict[str, int] = {}
        for group in self._groups.values():
            places.update(group.words)
        names, encoded = self._words.encode(places)
        places.update(zip(names, range(len(names)), strict=True))
        del names
        for ((heldout, source), group), size in zip(self._groups.items(), sizes, strict=True):
            times = np.zeros(len(places), dtype=np.int64)
            found = np.fromiter(map(places.__getitem__, group.words), np.int64, size)
            times[found] = np.fromiter(group.words.values(), np.int64, size)
            weights = np.repeat(times, encoded.sizes)
            there = weights > 0
            yield encoded.ids[there], weights[there], heldout, source

    def _in_order(self, sample: ReplySample | None) -> Iterator[Counted]:
        """The sampled conversations, one by one."""
        if not self._sampled:
            return
        replies = [reply for row in self._sampled for reply in row.replies]
        encoded = self.encoder.encode([frame.segment(text) for frame, text in replies])
        lists = encoded.lists()
        for row in self._sampled:
            parts = [self._reply(frame, text, next(lists)) for frame, text in row.replies]
            ids = np.concatenate(parts)
            if sample is not None:
                sample.add(row.key, ids)
            yield ids, None, True, row.source
        self._sampled.clear()

    def _reply(self, frame: Frame, text: str, ids: Ids, times: int = 1) -> Ids:
        """The reply's ids among those of its segment."""
        cut = frame.lead_ids.size
        if np.array_equal(ids[:cut], frame.lead_ids):
            return ids[cut:]
        segment = frame.segment(text)
        exact = encode(self._backend, segment, [(len(frame.lead), len(segment))])
        self.straddling += exact.straddling * times
        return exact.ids[exact.mask]

    def _replies(self, frame: Frame, texts: Mapping[str, int]) -> Iterator[tuple[Ids, Ids]]:
        """Ids of reply texts in one frame, and how often each of the ids counts."""
        names, times = list(texts), np.fromiter(texts.values(), np.int64, len(texts))
        encoded = self.encoder.encode([frame.segment(text) for text in names])
        led, keep = _after_lead(encoded, frame.lead_ids)
        keep &= np.repeat(led, encoded.sizes)
        yield encoded.ids[keep], np.repeat(times, encoded.sizes)[keep]
        if led.all():
            return
        for text, number, ids, as_expected in zip(names, times, encoded.lists(), led, strict=True):
            if not as_expected:
                exact = self._reply(frame, text, ids, int(number))
                yield exact, np.full(exact.size, number, dtype=np.int64)


def _after_lead(encoded: Ragged, lead: Ids) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """([texts] whether a text's ids begin with those of the lead, [ids] which come after it)."""
    starts = np.cumsum(encoded.sizes) - encoded.sizes
    led = encoded.sizes >= lead.size
    places = starts[led, None] + np.arange(lead.size)
    keep = np.ones(encoded.ids.size, dtype=np.bool_)
    keep[places] = False
    led[led] = (encoded.ids[places] == lead).all(axis=1)
    return led, keep
