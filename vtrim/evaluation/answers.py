"""Replies against recorded answers: the last number of a reply must be the answer's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from vtrim.chat.read import read_rows
from vtrim.chat.skips import SkipLog
from vtrim.evaluation.prompts import Prompt

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_MARK = "####"  # GSM8K's, before the answer


def last_number(text: str) -> Decimal | None:
    """The last number in a text, thousands separated by commas or not; None without one."""
    found = _NUMBER.findall(text)
    return Decimal(found[-1].replace(",", "")) if found else None


def answers_of(path: Path, prompts: Sequence[Prompt]) -> list[Decimal | None]:
    """The number that answers each prompt; None where its row records none.

    A row's ``answer`` counts when it is a number, or has one behind GSM8K's mark.
    """
    wanted = {prompt.origin for prompt in prompts}
    rows = read_rows(path, skipped=SkipLog())
    found = {origin: _answer(row) for origin, row in rows if origin in wanted}
    return [found.get(prompt.origin) for prompt in prompts]


def score(replies: Sequence[str], answers: Sequence[Decimal | None]) -> float | None:
    """Share of the replies whose last number is the answer; None where no answer is known."""
    pairs = [(r, a) for r, a in zip(replies, answers, strict=True) if a is not None]
    if not pairs:
        return None
    return sum(last_number(reply) == answer for reply, answer in pairs) / len(pairs)


def _answer(row: Any) -> Decimal | None:
    recorded = row.get("answer") if isinstance(row, Mapping) else None
    if isinstance(recorded, int | float) and not isinstance(recorded, bool):
        return Decimal(str(recorded))
    if not isinstance(recorded, str):
        return None
    _, mark, marked = recorded.rpartition(_MARK)
    text = (marked if mark else recorded).strip()
    return last_number(text) if mark or _NUMBER.fullmatch(text) else None
