"""Chat files to conversations: JSONL or a JSON array, plain or gzip, in UTF-8."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from vtrim.chat.conversation import Conversation, Origin, RowError, conversation_of
from vtrim.chat.json_array import ArrayError, array_elements
from vtrim.chat.skips import SkipLog
from vtrim.errors import InputError

BAD_ROW = "bad JSON"
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_REPORT_EVERY = 256
_CUT_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)


def read_conversations(
    paths: Iterable[str | Path],
    *,
    skip_bad_rows: bool = False,
    skipped: SkipLog,
    advance: Callable[[int], None] | None = None,
) -> Iterator[Conversation]:
    """Conversations of all files in order, one at a time.

    Rows that cannot be used are noted in ``skipped``; ``advance`` is told how many bytes of the
    files have been read since it was last called.

    Raises:
        InputError: a file is missing or has no rows; a line is cut or is not JSON in UTF-8 and
            ``skip_bad_rows`` is not set.
    """
    for path in paths:
        for origin, value in read_rows(
            path, skip_bad_rows=skip_bad_rows, skipped=skipped, advance=advance
        ):
            try:
                conversation = conversation_of(value, origin)
                _check_text(conversation)
            except RowError as error:
                skipped.add(error.reason, origin, error.detail)
                continue
            yield conversation


def read_rows(
    path: str | Path,
    *,
    skip_bad_rows: bool = False,
    skipped: SkipLog,
    advance: Callable[[int], None] | None = None,
) -> Iterator[tuple[Origin, Any]]:
    """Parsed JSON rows of one file and where each stands; options as in ``read_conversations``.

    Raises:
        InputError: as in ``read_conversations``.
    """
    path = Path(path)
    with _open(path) as raw:
        yield from _whole_rows(path, raw, skip_bad_rows, skipped, advance or _ignore)


def _ignore(_count: int) -> None:
    """Nobody watches the progress."""


def _whole_rows(
    path: Path,
    raw: IO[bytes],
    skip_bad_rows: bool,
    skipped: SkipLog,
    advance: Callable[[int], None],
) -> Iterator[tuple[Origin, Any]]:
    rows = told = 0
    for line, value in _rows(path, raw):
        rows += 1
        if rows % _REPORT_EVERY == 0:
            advance(raw.tell() - told)
            told = raw.tell()
        origin = Origin(str(path), line)
        if isinstance(value, _Bad):
            if not skip_bad_rows:
                raise InputError(
                    f"{origin}: not a whole JSON row ({value.why}). "
                    "Repair the line, or leave such rows out with --skip-bad-rows."
                )
            skipped.add(BAD_ROW, origin, value.why)
            continue
        yield origin, value
    advance(raw.tell() - told)
    if not rows:
        raise InputError(f"{path}: no rows; the file is empty.")


def _check_text(conversation: Conversation) -> None:
    """Refuses half of a surrogate pair (JSON can spell one, UTF-8 cannot hold it)."""
    for message in conversation.messages:
        content = message["content"]
        if not content.isascii():
            try:
                content.encode()
            except UnicodeEncodeError as error:
                raise RowError("unreadable content", "half of a surrogate pair") from error


class _Bad:
    """A row that is not JSON, or text that is not UTF-8."""

    def __init__(self, why: str) -> None:
        self.why = why


def _open(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file.") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error


def _rows(path: Path, raw: IO[bytes]) -> Iterator[tuple[int, Any]]:
    """(line number, parsed value or _Bad) of each row; blank lines are no rows."""
    magic = raw.read(2)
    raw.seek(0)
    stream: IO[bytes] = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if magic == _GZIP else raw
    line, started = 0, False
    try:
        for line, data in enumerate(stream, 1):
            body = data.removeprefix(_BOM) if line == 1 else data
            body = body.strip(b" \t\r\n")
            if not body:
                continue
            if not started and body.startswith(b"["):
                yield from array_elements(body[1:] + b"\n", stream, line)
                return
            started = True
            yield line, _parse(body)
    except ArrayError as error:
        yield error.line, _Bad(f"in a JSON array: {error.why}; nothing after it can be read")
    except _CUT_GZIP as error:
        yield line + 1, _Bad(f"the gzip stream is cut or damaged: {error}")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        return _Bad(f"not UTF-8 at byte {error.start + 1} of the line")
    except json.JSONDecodeError as error:
        return _Bad(f"{error.msg.removesuffix(' at')} at column {error.colno}")
    except RecursionError:
        return _Bad("nested too deeply")
