"""Rows of JSONL or of one JSON array, from a stream of bytes in UTF-8."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BufferedReader
from typing import Any

from vtrim.chat.json_array import ArrayError, array_elements
from vtrim.chat.rows import ELSEWHERE, Bad, Row, Shard
from vtrim.chat.streams import CutStreamError

_BOM = b"\xef\xbb\xbf"
_decode = json.JSONDecoder().raw_decode


def json_rows(stream: BufferedReader, shard: Shard) -> Iterator[Row]:
    """The rows of a stream, the first ``[`` telling an array; blank lines are no rows."""
    line, number = 1, 0
    index, count = shard.index, shard.count
    try:
        line = _skip_blank(stream)
        if stream.peek(1)[:1] == b"[":
            yield from _elements(stream, line, shard)
            return
        for line, data in enumerate(stream, line):  # noqa: B020 - from the first line with text on
            body = data.strip(b" \t\r\n")
            if body:
                yield line, _parse(body) if number % count == index else ELSEWHERE
                number += 1
    except CutStreamError as error:
        yield line + (number > 0), Bad(str(error)) if shard.owns(number) else ELSEWHERE


def _skip_blank(stream: BufferedReader) -> int:
    """Passes over a byte order mark and white space; the line it leads to, from 1."""
    if stream.peek(len(_BOM)).startswith(_BOM):
        stream.read(len(_BOM))
    line = 1
    while (mark := stream.peek(1)[:1]) and mark in b" \t\r\n":
        line += mark == b"\n"
        stream.read(1)
    return line


def _elements(stream: BufferedReader, line: int, shard: Shard) -> Iterator[Row]:
    """The elements of an array; those of other shards have to be parsed to be passed over."""
    number, place = 0, line
    stream.read(1)
    try:
        for place, value in array_elements(b"", stream, line):
            yield place, value if shard.owns(number) else ELSEWHERE
            number += 1
    except (ArrayError, CutStreamError) as error:
        if isinstance(error, ArrayError):
            place = error.line
        bad = Bad(f"in a JSON array: {error}; nothing after it can be read")
        yield place, bad if shard.owns(number) else ELSEWHERE


def _parse(body: bytes) -> Any:
    try:
        text = body.decode()
        value, end = _decode(text)
    except UnicodeDecodeError as error:
        return Bad(f"not UTF-8 at byte {error.start + 1} of the line")
    except json.JSONDecodeError as error:
        if body in (b"{", b"[") or error.pos >= len(body):
            return Bad("the line ends inside the JSON; each row has to be on one line")
        return Bad(f"{error.msg.removesuffix(' at')} at column {error.colno}")
    except RecursionError:
        return Bad("nested too deeply")
    except ValueError as error:  # a number of thousands of digits
        return Bad(str(error))
    return value if end == len(text) else Bad(f"Extra data at column {end + 1}")
