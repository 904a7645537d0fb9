"""Texts counted by distinct word: each is encoded once, however often it stands.

A word begins with the space before it. A BPE encodes it alone as it does in its text if no token
of the vocabulary holds the character before that space and the space: then no merge crosses the
cut. That is read off the vocabulary; that the pre-tokenizer cuts there too (or nowhere near) is
proved on hard texts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from vtrim.chat.encoders import Ragged, TokenizersEncoder, equal, hard_texts
from vtrim.chat.pretokens import Pretokens

# Words joined into one text by a special token: a call a word costs more than its encoding.
_JOINED = 32
# How a vocabulary spells a space: byte-level, SentencePiece.
_BLANKS = ("\u0120", "\u2581")
_BYTES = {chr(code): code for code in [*range(33, 127), *range(161, 173), *range(174, 256)]}
_BYTES |= {chr(256 + place): code for place, code in enumerate([*range(33), *range(127, 161), 173])}


class Words:
    """Splits texts at spaces where this tokenizer encodes both sides alone; see ``build``."""

    def __init__(
        self,
        backend: Any,
        cut: re.Pattern[str],
        mark: tuple[str, int],
        pretokens: Pretokens | None,
    ) -> None:
        self._cut = cut.split
        self._mark, self._mark_id = mark
        self._pretokens = pretokens
        self._encoder = TokenizersEncoder(backend)

    @classmethod
    def build(cls, backend: Any) -> Words | None:
        """The splitter of this tokenizer, or None where the cuts cannot be proved."""
        added = backend.get_added_tokens_decoder()
        if any(t.lstrip or t.rstrip or t.single_word or " " in t.content for t in added.values()):
            return None
        marks = [(t.content, key) for key, t in added.items() if t.special and not t.normalized]
        cut = _cut_pattern(backend)
        if cut is None or not marks:
            return None
        for pretokens in (Pretokens.build(backend), None):
            words = cls(backend, cut, marks[-1], pretokens)
            if words._agrees_with(backend):
                return words
        return None

    def split(self, text: str) -> list[str]:
        """The first word with all that stands before it, then the others without their space."""
        return [text] if self._mark in text else self._cut(text)

    def encode(self, words: Iterable[str]) -> tuple[list[str], Ragged]:
        """Words that ``split`` gave, in another order, and their ids with the space before."""
        easy: list[str] = []
        hard: list[str] = []
        takes = self._pretokens.takes if self._pretokens else _none
        for word in words:
            (easy if takes(word) else hard).append(word)
        ids, sizes = self._joined(hard)
        if self._pretokens is not None and easy:
            first = self._pretokens.encode(easy)
            ids, sizes = np.concatenate([first.ids, ids]), np.concatenate([first.sizes, sizes])
        return easy + hard, Ragged(ids, sizes)

    def _joined(self, words: list[str]) -> Ragged:
        """Ids of words by the tokenizer itself."""
        spaced = [f" {word}{self._mark}" for word in words]
        ids, _ = self._encoder.encode(
            ["".join(spaced[start : start + _JOINED]) for start in range(0, len(spaced), _JOINED)]
        )
        marks = np.flatnonzero(ids == self._mark_id)
        return Ragged(np.delete(ids, marks), np.diff(marks, prepend=-1) - 1)

    def _agrees_with(self, backend: Any) -> bool:
        """Whether hard texts get the tokenizer's own ids from their words."""
        texts = hard_texts(backend)
        split = [self.split(text) for text in texts]
        first = list(self._encoder.encode([words[0] for words in split]).lists())
        known = dict.fromkeys(word for words in split for word in words[1:])
        names, encoded = self.encode(known)
        rest = dict(zip(names, encoded.lists(), strict=True))
        found = [
            np.concatenate([start, *(rest[word] for word in words[1:])])
            for start, words in zip(first, split, strict=True)
        ]
        sizes = np.array([ids.size for ids in found], dtype=np.int64)
        return equal(Ragged(np.concatenate(found), sizes), self._encoder.encode(texts))


def _none(_word: str) -> bool:
    """There is nothing that would take the word."""
    return False


def _cut_pattern(backend: Any) -> re.Pattern[str] | None:
    r"""A space between visible characters, if no token holds it and the one before it.

    Visible: printable ASCII, and what ``\w`` means: letters and digits of all scripts.
    """
    if type(backend.model).__name__ != "BPE" or backend.model.dropout is not None:
        return None
    before = _before_space(backend.get_vocab(with_added_tokens=False))
    if before is None:
        return None
    visible = "!-~" if "\ufffd" in before else r"!-~\w"
    unsafe = "".join(re.escape(c) for c in sorted(before) if not c.isspace())
    barred = f"(?<![{unsafe}] )" if unsafe else ""
    return re.compile(rf" (?<=[{visible}] ){barred}(?=[!-~\w])")


def _before_space(vocabulary: Iterable[str]) -> set[str] | None:
    r"""The characters that stand before a space within a token; None for an unknown alphabet.

    \ufffd stands for a character that begins in another token.
    """
    tokens = list(vocabulary)
    starts = Counter(token[:1] for token in tokens)
    blank = max(_BLANKS, key=lambda symbol: starts[symbol])
    if not starts[blank]:
        return None
    found: set[str] = set()
    for token in tokens:
        if blank in token[1:]:
            for place in range(1, len(token)):
                if token[place] == blank != token[place - 1]:
                    found.add(_last_character(token[:place], blank))
    return found


def _last_character(token: str, blank: str) -> str:
    """The last character that a token stands for."""
    if blank == _BLANKS[1]:
        return token[-1]
    return bytes(_BYTES.get(symbol, 255) for symbol in token).decode("utf-8", errors="replace")[-1]
