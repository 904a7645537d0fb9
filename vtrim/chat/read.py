"""Chat data to conversations, one row at a time, whatever holds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vtrim.chat.columns import check_columns
from vtrim.chat.conversation import Conversation, Origin, RowError, conversations_of
from vtrim.chat.rows import ELSEWHERE, WHOLE, Bad, Shard
from vtrim.chat.skips import SkipLog
from vtrim.chat.sources import Source, as_sources
from vtrim.chat.turns import check_unicode
from vtrim.errors import InputError

__all__ = ["BAD_ROW", "ReadOptions", "Shard", "read_conversations", "read_rows"]

BAD_ROW = "bad JSON"
_REPORT_EVERY = 256


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How sources are read.

    skip_bad_rows: leave rows out that are not JSON, instead of stopping; columns: from part
    (``user``, ``assistant``, ``system``, ``messages``) to column, for rows of no known form;
    source_column: names the domain of a row; split: of data sets that have several; shard: the
    rows to read, None for all.
    """

    skip_bad_rows: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    source_column: str = "source"
    split: str | None = None
    shard: Shard | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, for ``run.json``."""
        return {
            "skip_bad_rows": self.skip_bad_rows,
            "columns": dict(self.columns),
            "source_column": self.source_column,
            "split": self.split,
            "shard": None if self.shard is None else str(self.shard),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ReadOptions:
        """The options that ``to_dict`` wrote."""
        shard = values.get("shard")
        return cls(
            skip_bad_rows=bool(values.get("skip_bad_rows", False)),
            columns=dict(values.get("columns") or {}),
            source_column=str(values.get("source_column", "source")),
            split=values.get("split"),
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
                    _check_text(conversation)
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
    with source.open(options.shard or WHOLE, _more_columns(options)) as (rows, position):
        for line, value in rows:
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
            "parquet: repair the row, or leave such rows out with --skip-bad-rows."
        )
    skipped.add(BAD_ROW, origin, bad.why)


def _more_columns(options: ReadOptions) -> list[str]:
    """Columns that a table has to give besides those of the known forms."""
    mapped = options.columns.values()
    return [options.source_column, *mapped, *(name.split(".")[0] for name in mapped)]


def _check_columns(source: Source, options: ReadOptions) -> None:
    """Looks for the mapped columns in the first whole row, whatever shard it belongs to."""
    with source.open(WHOLE, None) as (rows, _):
        for line, value in rows:
            if value.__class__ is not Bad:
                check_columns(value, options.columns, str(Origin(source.label, line)))
                return


def _check_text(conversation: Conversation) -> None:
    """Refuses half of a surrogate pair, in every text that a template may write."""
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
