"""``--map``: which column of a row holds which part of the conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vtrim.chat.turns import Message, RowError, messages_of, text_of, with_system
from vtrim.chat.visible import short
from vtrim.errors import OptionError

PARTS = ("user", "assistant", "system", "messages")


def parse_columns(text: str) -> dict[str, str]:
    """``user=question,assistant=answer`` as a mapping from part to column.

    Raises:
        OptionError: a part is unknown or named twice, or there is no reply among them.
    """
    columns: dict[str, str] = {}
    for pair in filter(None, (one.strip() for one in text.split(","))):
        part, mark, column = (one.strip() for one in pair.partition("="))
        if not mark or not column or part not in PARTS or part in columns:
            raise OptionError(
                f"--map {text}: '{pair}' is not PART=COLUMN with each of {', '.join(PARTS)} at "
                "most once, e.g. --map user=question,assistant=answer."
            )
        columns[part] = column
    if ("assistant" in columns) == ("messages" in columns):
        raise OptionError(f"--map {text}: name the replies by either assistant= or messages=.")
    return columns


def absent_columns(rows: Iterable[dict[str, Any]], columns: Iterable[str]) -> set[str]:
    """Those of the columns that none of the rows has."""
    absent = set(columns)
    for row in rows:
        if not absent:
            break
        absent -= {column for column in absent if pick(row, column) is not ABSENT}
    return absent


def listed(names: Iterable[Any], limit: int = 12) -> str:
    """The names of columns, the first ``limit`` of them."""
    shown = [short(name) for name in names]
    return ", ".join(shown[:limit]) + (", ..." if len(shown) > limit else "") or "(none)"


def mapped_messages(row: dict[str, Any], columns: Mapping[str, str]) -> list[Message]:
    """The turns in the named columns; lists of texts are turns that take each other's place.

    Raises:
        RowError: a column is missing or null, or holds no text.
    """
    values = {part: _value(row, column) for part, column in columns.items() if part != "system"}
    if "messages" in values:
        messages = messages_of(values["messages"], columns["messages"])
    else:
        messages = _interleaved({part: _texts(value) for part, value in values.items()})
    system = pick(row, columns["system"]) if "system" in columns else None
    return with_system(messages, None if system is ABSENT else system)


ABSENT: Any = object()


def _value(row: dict[str, Any], column: str) -> Any:
    value = pick(row, column)
    if value is ABSENT or value is None:
        raise RowError("missing column", f"`{column}` is missing or null")
    return value


def pick(row: dict[str, Any], column: str) -> Any:
    """The value of a column, or ABSENT; ``choices.0.text`` reaches into objects and lists."""
    if column in row:
        return row[column]
    value: Any = row
    for key in column.split("."):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return ABSENT
    return value


def _texts(value: Any) -> list[str]:
    """One text, or one for each turn where the column holds a list of texts."""
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return value
    return [text_of(value)]


def _interleaved(texts: Mapping[str, list[str]]) -> list[Message]:
    """user, assistant, user, assistant ... from the texts of each."""
    lengths = {part: len(values) for part, values in texts.items()}
    if len(set(lengths.values())) != 1:
        counts = ", ".join(f"{part} {number}" for part, number in lengths.items())
        raise RowError("uneven columns", f"they hold different numbers of turns ({counts})")
    roles = sorted(texts, reverse=True)  # user before assistant
    return [
        {"role": role, "content": content}
        for turn in zip(*(texts[role] for role in roles), strict=True)
        for role, content in zip(roles, turn, strict=True)
    ]
