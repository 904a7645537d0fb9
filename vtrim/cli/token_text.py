"""Tokens as text that a terminal and a reader can bear."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Texts:
    """Tokens as text: from a tokenizer, else from the texts a run keeps."""

    tokenizer: Any
    known: Mapping[str, str]

    def of(self, token: int) -> str | None:
        """The token's text, quoted, with what cannot be printed escaped; None where unknown."""
        if self.tokenizer is not None:
            text: str | None = self.tokenizer.decode([token])
        else:
            text = self.known.get(str(token))
        return None if text is None else quoted(text)


def quoted(text: str) -> str:
    """The text in quotes; letters of all scripts stay, controls become escapes."""
    inner = "".join(c if c.isprintable() else _escape(c) for c in text.replace("\\", "\\\\"))
    return '"' + inner.replace('"', '\\"') + '"'


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
