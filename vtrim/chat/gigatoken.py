"""The PyPI package ``gigatoken`` as a faster encoder, used only where it proves itself.

Optional, in beta, and of one author: so its ids are compared with those of ``tokenizers`` on hard
texts when it is set up, on every character that is met for the first time (it knows a younger
Unicode, in which some have another class), and on a sample of the conversations of every run (see
``feed``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from vtrim.chat.encoders import Ragged, TokenizersEncoder, equal, hard_texts
from vtrim.errors import InputError

# Its cache of pre-tokens is never emptied: a new encoder takes over when the process has grown by
# so much while encoding, or after so much text, whichever comes first.
_MAX_GROWTH = 64 << 20  # [bytes]
_MAX_CHARACTERS = 256_000_000
# What stands around a character decides into which pieces a text falls.
_AROUND = "a{0}b {0} 1{0}2 .{0}, \n{0}'s {0}{0} E{0}\u0323\u0301 \u0301{0}x \u00e9{0}\u00e9\t{0}\n"
REMEDY = "Leave --encoder out, or give --encoder tokenizers."


class NotProved(InputError):  # noqa: N818 - the caller may go on without it
    """gigatoken is not installed, does not take this tokenizer, or gives other ids."""


class GigatokenEncoder:
    """Ids by gigatoken, on the calling thread alone.

    Raises:
        NotProved: it cannot be used for this tokenizer.
    """

    name = "gigatoken"

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._reference = TokenizersEncoder(backend)
        self._engine = self._start()
        self._grown = self._seen = 0
        self._known: set[str] = set()
        self._unlike: set[str] = set()
        texts = hard_texts(backend)
        if not equal(self._fast(texts), self._reference.encode(texts)):
            raise NotProved(f"gigatoken gives other ids than tokenizers here. {REMEDY}")

    def encode(self, texts: Sequence[str]) -> Ragged:
        """The ids of the texts; those with a character that gigatoken takes otherwise the slow way.

        Raises:
            NotProved: its native code fails.
        """
        self._learn({symbol for text in texts if not text.isascii() for symbol in set(text)})
        if not self._unlike:
            return self._fast(texts)
        slow = [not (text.isascii() or self._unlike.isdisjoint(text)) for text in texts]
        if not any(slow):
            return self._fast(texts)
        lists = {
            True: self._reference.encode(list(compress(texts, slow))).lists(),
            False: self._fast(
                [text for text, one in zip(texts, slow, strict=True) if not one]
            ).lists(),
        }
        found = [next(lists[one]) for one in slow]
        return Ragged(np.concatenate(found), np.fromiter(map(len, found), np.int64, len(found)))

    def _learn(self, symbols: set[str]) -> None:
        """Compares both encoders on the characters that were not met before."""
        new = sorted(symbols - self._known)
        if not new:
            return
        texts = [_AROUND.format(symbol) for symbol in new]
        fast, slow = self._fast(texts).lists(), self._reference.encode(texts).lists()
        self._unlike.update(
            symbol
            for symbol, one, other in zip(new, fast, slow, strict=True)
            if not np.array_equal(one, other)
        )
        self._known.update(new)

    def _fast(self, texts: Sequence[str]) -> Ragged:
        """The ids that gigatoken gives."""
        if self._grown > _MAX_GROWTH or self._seen > _MAX_CHARACTERS:
            self._engine = None  # before the next is made: both at once would double the memory
            self._engine = self._start()
            self._grown = self._seen = 0
        before = _resident()
        lists = [np.zeros(0, dtype=np.uint32)]
        try:
            # Text by text: its batches cost 36 MB for the package `awkward`, whose arrays they are.
            for text in texts:
                lists.append(self._engine.encode(text))
                self._seen += len(text)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic of its native code is no Exception
            raise NotProved(f"gigatoken fails ({_line(error)}). {REMEDY}") from error
        ids = np.concatenate(lists, dtype=np.int64)
        self._grown += _resident() - before - ids.nbytes
        return Ragged(ids, np.fromiter(map(len, lists[1:]), np.int64, len(texts)))

    def _start(self) -> Any:
        try:
            from gigatoken import Tokenizer
        except ImportError as error:
            raise NotProved(
                f"gigatoken is not installed. Install it (pip install 'vtrim[fast]'). {REMEDY}"
            ) from error
        try:
            return Tokenizer.from_json(self._backend.to_str().encode()).backend
        except Exception as error:
            raise NotProved(
                f"gigatoken does not take this tokenizer ({_line(error)}). {REMEDY}"
            ) from error


def _resident() -> int:
    """Memory of this process that is resident [bytes]; 0 where the system does not tell (/proc)."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
