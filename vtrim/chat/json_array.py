"""The elements of one JSON array, read from a stream without holding the whole of it."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import IO, Any

_CHUNK = 1 << 20
_BLANK = " \t\r\n"
_LONGEST_WORD = 16  # characters that an error stands before the cut at most: -Infinity, \\ud83d

# What to do with rows that are lists.
WRAP = 'a row that is a list of turns has to be wrapped as {"messages": [...]}'


class ArrayError(Exception):
    """The array is cut, is not JSON or is not UTF-8. line: where, counted from 1."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line
        self.why = why


def array_elements(head: bytes, stream: IO[bytes], line: int) -> Iterator[tuple[int, Any]]:
    """(line number, value) of each element. head: what follows ``[`` on that line.

    Raises:
        ArrayError: the array is not whole; the elements before that were given.
    """
    text = _Window(head, stream, line)
    first = True
    while True:
        mark = text.peek()
        if mark == "]":
            break
        if not first:
            if mark != ",":
                raise ArrayError(text.line, "a comma or the end of the array is missing")
            text.skip(1)
            text.peek()
        yield text.line, text.value()
        first = False
    text.skip(1)
    mark = text.peek()
    if mark == "[":
        raise ArrayError(text.line, f"another array; {WRAP}")
    if mark:
        raise ArrayError(text.line, "text after the end of the array")


class _Window:
    """The part of the stream that has been decoded and not yet used."""

    def __init__(self, head: bytes, stream: IO[bytes], line: int) -> None:
        self.line = line
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder()
        self._stream = stream
        self._ended = False
        self._position = 0
        self._text = self._decode(head)

    def peek(self) -> str:
        """The next character that is not blank; empty at the end of the stream."""
        while True:
            while self._position < len(self._text):
                mark = self._text[self._position]
                if mark not in _BLANK:
                    return mark
                self.skip(1)
            if not self._more():
                return ""

    def skip(self, count: int) -> None:
        """Moves on, counting lines."""
        self.line += self._text.count("\n", self._position, self._position + count)
        self._position += count

    def value(self) -> Any:
        """The JSON value that starts here."""
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._position)
            except json.JSONDecodeError as error:
                if self._may_go_on(error) and self._more():
                    continue
                raise ArrayError(self.line, error.msg) from error
            except RecursionError as error:
                raise ArrayError(self.line, "nested too deeply") from error
            except ValueError as error:  # a number of thousands of digits
                raise ArrayError(self.line, str(error)) from error
            if end == len(self._text) and self._more():  # a number may go on in the next chunk
                continue
            self.skip(end - self._position)
            return value

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        """Whether the value may be whole with the next chunk; else that is not read for it."""
        near_end = error.pos + _LONGEST_WORD > len(self._text)
        return near_end or error.msg.startswith("Unterminated string")

    def _more(self) -> bool:
        """Reads on, at least as much as is held, so that one long element costs linear time."""
        if self._ended:
            return False
        held = self._text[self._position :]
        data = self._stream.read(max(_CHUNK, len(held)))
        self._ended = not data
        self._text = held + self._decode(data)
        self._position = 0
        return True

    def _decode(self, data: bytes) -> str:
        try:
            return self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise ArrayError(self.line, "not UTF-8") from error
