"""Text from data as it may be shown: nothing in it can move a cursor or fill a screen."""

from __future__ import annotations

import unicodedata

_JOINERS = ("\u200c", "\u200d")  # they build letters and emoji; alone they do no harm
_MAX_NAME = 60
_MAX_LINE = 400


def visible(text: str, newline: str = "\u21b5\n") -> str:
    """The text with control characters as pictures or codes, and ``newline`` for a line feed."""
    return "".join(
        char if char.isalnum() or char == " " else _visible(char, newline) for char in text
    )


def short(value: object, limit: int = _MAX_NAME) -> str:
    """A name or value from data on one line, cut to ``limit`` characters."""
    text = str(value)
    return visible(text if len(text) <= limit else f"{text[: limit - 3]}...", "\u21b5")


def one_line(text: str) -> str:
    """A message that may hold texts from data, on one line and of bounded length."""
    return short(text, _MAX_LINE)


def _visible(char: str, newline: str) -> str:
    code = ord(char)
    if char == "\n":
        return newline
    if code < 32:
        return chr(0x2400 + code)
    if char in _JOINERS or unicodedata.category(char) not in ("Cc", "Cf", "Zl", "Zp", "Cs"):
        return char
    return f"\\u{{{code:x}}}"
