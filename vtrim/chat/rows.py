"""What every reader of rows has in common: their numbers, shards of them, and bad ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vtrim.chat.visible import one_line, short
from vtrim.errors import OptionError

_SHARD = re.compile(r"\s*(\d{1,20})\s*/\s*(\d{1,20})\s*")
_MAX_SHARDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Shard:
    """Every ``count``-th row of each file, from row ``index`` on; both count from 0."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard that ``2/4`` names: the second of four.

        Raises:
            OptionError: it is not of that form, or out of range.
        """
        numbers = _SHARD.fullmatch(text)
        if not numbers:
            raise OptionError(
                f"--shard {short(text)}: give the part and the number of parts, e.g. 1/4."
            )
        index, count = int(numbers[1]), int(numbers[2])
        if not 1 <= index <= count:
            raise OptionError(
                f"--shard {short(text)}: the part must be between 1 and {max(count, 1)}."
            )
        if count > _MAX_SHARDS:
            raise OptionError(f"--shard {short(text)}: at most {_MAX_SHARDS:,} parts.")
        return cls(index - 1, count)

    def __str__(self) -> str:
        return f"{self.index + 1}/{self.count}"

    def owns(self, number: int) -> bool:
        """Whether the row with this number (from 0, in its file) is one of the shard's."""
        return number % self.count == self.index


WHOLE = Shard(0, 1)


class Bad:
    """A row that cannot be read, and why."""

    def __init__(self, why: str) -> None:
        self.why = one_line(why)


# Stands in for a row of another shard, which is counted but not parsed.
ELSEWHERE: Any = object()

# (line or row, counted from 1; its value, or Bad, or ELSEWHERE)
Row = tuple[int, Any]


class Opened(NamedTuple):
    """The rows of a source, and a function that tells how many of its bytes have been read.

    columns: names of all columns, of a table.
    """

    rows: Iterator[Row]
    position: Callable[[], int]
    columns: Sequence[str] | None = None
