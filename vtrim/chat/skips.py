"""What was skipped and why: nothing is dropped in silence."""

from __future__ import annotations

from vtrim.chat.conversation import Origin

FIRST_PLACES = 3


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
            places.append(f"{origin}: {detail}" if detail else str(origin))

    @property
    def total(self) -> int:
        """Number of skipped rows."""
        return sum(self.counts.values())

    def lines(self) -> list[str]:
        """One line a reason: how many rows, and where the first of them are."""
        return [
            f"{reason}: {count} ({'; '.join(self.first[reason])}"
            f"{'; ...' if count > len(self.first[reason]) else ''})"
            for reason, count in sorted(self.counts.items())
        ]
