"""What was skipped and why: nothing is dropped in silence."""

from __future__ import annotations

import re

from vtrim.chat.conversation import Origin
from vtrim.chat.visible import one_line, visible

FIRST_PLACES = 3
_NUMBER = re.compile(r"(\d+)")


class SkipLog:
    """Counts of skipped rows by reason, with the first places of each."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.first: dict[str, list[str]] = {}

    def add(self, reason: str, origin: Origin, detail: str = "") -> None:
        """Notes one skipped row."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        places = self.first.setdefault(reason, [])
        if len(places) < FIRST_PLACES:
            place = visible(str(origin), " ")
            places.append(f"{place}: {one_line(detail)}" if detail else place)

    @property
    def total(self) -> int:
        """Number of skipped rows."""
        return sum(self.counts.values())

    def merge(self, other: SkipLog) -> SkipLog:
        """The log of both, e.g. of two shards of a file; places in the order of files and rows."""
        both = SkipLog()
        for reason in sorted({*self.counts, *other.counts}):
            both.counts[reason] = self.counts.get(reason, 0) + other.counts.get(reason, 0)
            places = [*self.first.get(reason, ()), *other.first.get(reason, ())]
            both.first[reason] = sorted(places, key=_in_order)[:FIRST_PLACES]
        return both

    def lines(self) -> list[str]:
        """One line a reason: how many rows, and where the first of them are."""
        return [
            f"{reason}: {count} ({'; '.join(self.first[reason])}"
            f"{'; ...' if count > len(self.first[reason]) else ''})"
            for reason, count in sorted(self.counts.items())
        ]


def _in_order(place: str) -> list[str]:
    """A key that sorts numbers in names and lines by their value."""
    return [part.zfill(20) if part.isdecimal() else part for part in _NUMBER.split(place)]
