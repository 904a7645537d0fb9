"""Chat data to conversations, one row at a time, whatever holds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from vtrim.chat.columns import absent_columns, listed
from vtrim.chat.conversation import Conversation, Origin, RowError, conversations_of
from vtrim.chat.rows import ELSEWHERE, WHOLE, Bad, Shard
from vtrim.chat.skips import SkipLog
from vtrim.chat.sources import Source, as_sources
from vtrim.chat.turns import check_unicode
from vtrim.errors import InputError

__all__ = [
    "BAD_ROW",
    "LEAVE_OUT",
    "ReadOptions",
    "Shard",
    "check_source_column",
    "check_text",
    "read_conversations",
    "read_rows",
]

BAD_ROW = "bad JSON"
SOURCE_COLUMN = "source"
LEAVE_OUT = ", or leave such rows out with --skip-bad-rows"  # coverage's advice
_REPORT_EVERY = 256
_LOOKED_AT = 300  # rows in which a column has to appear once


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How sources are read.

    skip_bad_rows: leave rows out that are not JSON, instead of stopping; columns: from part
    (``user``, ``assistant``, ``system``, ``messages``) to column, for rows of no known form;
    source_column: names the domain of a row; shard: the rows to read, None for all.
    """

    skip_bad_rows: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    source_column: str = SOURCE_COLUMN
    shard: Shard | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, for ``run.json``."""
        return {
            "skip_bad_rows": self.skip_bad_rows,
            "columns": dict(self.columns),
            "source_column": self.source_column,
            "shard": None if self.shard is None else str(self.shard),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ReadOptions:
        """The options that ``to_dict`` wrote."""
        shard = values.get("shard")
        return cls(
            skip_bad_rows=bool(values.get("skip_bad_rows", False)),
            columns=dict(values.get("columns") or {}),
            source_column=str(values.get("source_column", SOURCE_COLUMN)),
            shard=None if shard is None else Shard.parse(shard),
        )


def read_conversations(
    sources: Iterable[Source | str | Path],
    *,
    options: ReadOptions = ReadOptions(),
    skipped: SkipLog,
    advance: Callable[[int], None] | None = None,
) -> Iterator[Conversation]:
    """Conversations of all sources in order, one at a time.

    Rows that cannot be used are noted in ``skipped``; ``advance`` is told how many bytes of the
    sources have been read since it was last called.

    Raises:
        InputError: a source is missing or has no rows; a row is cut or is not JSON in UTF-8 and
            bad rows are not to be skipped; a mapped column is not there; no row can be used.
    """
    columns, source_column = options.columns, options.source_column
    found = as_sources(sources)
    before, used = skipped.total, False
    for source in found:
        if columns:
            _check_columns(source, options)
        for origin, value in read_rows(source, options=options, skipped=skipped, advance=advance):
            try:
                conversations = conversations_of(value, origin, columns, source_column)
                for conversation in conversations:
                    check_text(conversation)
            except RowError as error:
                skipped.add(error.reason, origin, error.detail)
                continue
            used = True
            yield from conversations
    if not used and options.shard is None and skipped.total > before:
        names = ", ".join(source.label for source in found)
        why = "; ".join(
            f"{reason} {skipped.counts[reason]:,}, first {places[0]}"
            for reason, places in skipped.first.items()
        )
        raise InputError(f"{names}: no row can be used ({why}).")


def read_rows(
    source: Source | str | Path,
    *,
    options: ReadOptions = ReadOptions(),
    skipped: SkipLog,
    advance: Callable[[int], None] | None = None,
) -> Iterator[tuple[Origin, Any]]:
    """Parsed rows of a source and where each stands; options as in ``read_conversations``.

    Raises:
        InputError: as in ``read_conversations``.
    """
    for one in as_sources([source]):
        yield from _rows(one, options, skipped, advance or _ignore)


def _ignore(_count: int) -> None:
    """Nobody watches the progress."""


def _rows(
    source: Source, options: ReadOptions, skipped: SkipLog, advance: Callable[[int], None]
) -> Iterator[tuple[Origin, Any]]:
    number = told = 0
    label = source.label
    with source.open(options.shard or WHOLE, _more_columns(options)) as opened:
        position = opened.position
        for line, value in opened.rows:
            number += 1
            if number % _REPORT_EVERY == 0:
                place = position()
                advance(place - told)
                told = place
            if value is ELSEWHERE:
                continue
            origin = Origin(label, line)
            if value.__class__ is Bad:
                _refuse(value, origin, options, skipped)
                continue
            yield origin, value
        advance(position() - told)
    if not number:
        raise InputError(f"{label}: no rows; the file is empty.")


def _refuse(bad: Bad, origin: Origin, options: ReadOptions, skipped: SkipLog) -> None:
    """Stops at a row that cannot be read, or notes it."""
    if not options.skip_bad_rows:
        raise InputError(
            f"{origin}: not a whole JSON row ({bad.why}). vtrim reads JSONL, a JSON array or "
            f"parquet: repair the row{LEAVE_OUT}."
        )
    skipped.add(BAD_ROW, origin, bad.why)


def _more_columns(options: ReadOptions) -> list[str]:
    """Columns that a table has to give besides those of the known forms."""
    named = [options.source_column, *options.columns.values()]
    return [*named, *(name.split(".")[0] for name in named)]


def check_source_column(sources: Iterable[Source], column: str) -> None:
    """Refuses a source column that no source has; without the usual one there are no sources.

    Raises:
        InputError: none has it; names the columns there are.
    """
    if column == SOURCE_COLUMN:
        return
    seen: dict[str, None] = {}
    for source in sources:
        absent, names = _absent(source, [column])
        if not absent:
            return
        seen.update(dict.fromkeys(names))
    raise InputError(f"--source-column {column}: no such column; the columns are {listed(seen)}.")


def _check_columns(source: Source, options: ReadOptions) -> None:
    """Looks for the mapped columns, whatever shard they belong to."""
    absent, names = _absent(source, options.columns.values())
    for part, column in options.columns.items():
        if column in absent:
            raise InputError(
                f"{source.label}: no column {column!r} for --map {part}={column}; "
                f"the columns are {listed(names)}."
            )


def _absent(source: Source, columns: Iterable[str]) -> tuple[set[str], list[str]]:
    """Those of the columns that a source does not have, and the names of all that it has.

    A table tells its columns; of other data the first rows do.
    """
    with source.open(WHOLE, None) as opened:
        if opened.columns is not None:
            names = list(opened.columns)
            absent = {one for one in columns if not {one, one.split(".")[0]} & {*names}}
            return absent, names
        rows = [row for _, row in islice(opened.rows, _LOOKED_AT) if isinstance(row, dict)]
    seen = dict.fromkeys(name for row in rows for name in row)
    return absent_columns(rows, columns), list(seen)


def check_text(conversation: Conversation) -> None:
    """Refuses half of a surrogate pair, in every text that a template may write.

    Raises:
        RowError: there is one, or something else that is no text.
    """
    for message in conversation.messages:
        content = message["content"]
        if not content.isascii():
            check_unicode(content)
        if len(message) > 2:
            check_unicode(message)
    for text in (conversation.source, conversation.text):
        if text is not None and not text.isascii():
            check_unicode(text)
    if conversation.tools is not None:
        check_unicode(conversation.tools)
