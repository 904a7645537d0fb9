"""Markdown tables and numbers of the pages in docs/results."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

DIFFERS = "what differs"
Interval = tuple[float, float]


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """A Markdown table: ``words`` columns and DIFFERS to the left, numbers to the right."""
    left = {*columns[:words], DIFFERS}
    marks = ["---" if name in left else "---:" for name in columns]
    lines = [columns, *rows]
    head, *body = ["| " + " | ".join(cells) + " |" for cells in lines]
    return "\n".join([head, "|" + "|".join(marks) + "|", *body])


def prose(text: str) -> str:
    """Paragraphs wrapped anew: what was put into them leaves no ragged lines."""
    return "\n\n".join(textwrap.fill(part, 100) for part in text.strip().split("\n\n"))


def page_of(parts: Iterable[str]) -> str:
    """A page of its parts; the star of k* is escaped, two would put in italics what is between."""
    return re.sub(r"\bk\*", r"k\\*", "\n\n".join(part.strip() for part in parts if part)) + "\n"


def number(value: float | None, digits: int = 2) -> str:
    """1.234 -> 1.23."""
    return "-" if value is None else f"{value:.{digits}f}"


def percent(share: float | None, digits: int = 1) -> str:
    """0.951 -> 95.1 %."""
    return "-" if share is None else f"{100 * share:.{digits}f} %"


def change(share: float | None, digits: int = 1) -> str:
    """-0.164 -> -16.4 %."""
    return "-" if share is None else f"{100 * share:+.{digits}f} %"


def between(interval: Interval | None, digits: int = 2) -> str:
    """(1.2, 1.5) -> 1.20 to 1.50."""
    return "-" if interval is None else f"{interval[0]:.{digits}f} to {interval[1]:.{digits}f}"


def change_between(interval: Interval | None, digits: int = 1) -> str:
    """(-0.2, 0.1) -> -20.0 to +10.0 %."""
    if interval is None:
        return "-"
    low, high = (100 * bound for bound in interval)
    return f"{low:+.{digits}f} to {high:+.{digits}f} %"
