"""Texts to token ids, many at a time: the reference and what every faster way has to equal."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

_CHUNK = 1000
_PROOFS = 300
_SYMBOLS = [
    *map(chr, range(128)),
    *["word", "Word", "WORD", "the", "ing", "2024", "'s", "'LL", "I'm", "n't", "\u017fo", "\u212a"],
    *["\n\n", "\r\n", "\n", "  ", "   ", "\t\t", " \n", "\n  ", "\n/", "//", "> </", "</", '{"a"'],
    *["é", "e\u0301", "ñ", "Å", "ß", "ё", "мир", "Ω", "漢字", "かな", "カ", "한국", "\u1112\u1161"],
    *["हिन्दी", "ไทย", "مرحبا", "שלום", "🙂", "👩\u200d👧", "½", "²", "٣", "Ⅷ", "ﬁ", "\U0001d4b3"],
    *["\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", "\u200d", "\ufeff", "\u2581", "…", "“"],
]
_PLAIN = ["word", "Word", "the", "12", "é", "мир", "漢字", ".", ",", "!", ")", '"', "'s", ">", "<"]


class Ragged(NamedTuple):
    """Ids of several texts, one after the other. ids: [sum of sizes]; sizes: [texts]."""

    ids: Ids
    sizes: Ids

    def lists(self) -> Iterator[Ids]:
        """The ids of each text."""
        ends = np.cumsum(self.sizes).tolist()
        for start, end in zip([0, *ends], ends, strict=False):
            yield self.ids[start:end]


class Encoder(Protocol):
    """What gives the ids of texts, special tokens that are spelled in them included."""

    @property
    def name(self) -> str:
        """The library that does the work."""

    def encode(self, texts: Sequence[str]) -> Ragged:
        """The ids of the texts."""


class TokenizersEncoder:
    """The reference: Hugging Face ``tokenizers``."""

    name = "tokenizers"

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def encode(self, texts: Sequence[str]) -> Ragged:
        """The ids of the texts."""
        lists: list[list[int]] = []
        for start in range(0, len(texts), _CHUNK):
            chunk = list(texts[start : start + _CHUNK])
            encodings = self._backend.encode_batch_fast(chunk, add_special_tokens=False)
            lists.extend(encoding.ids for encoding in encodings)
        return ragged(lists)


def ragged(lists: Sequence[Sequence[int]]) -> Ragged:
    """Lists of ids, one after the other."""
    sizes = np.fromiter(map(len, lists), np.int64, len(lists))
    ids = np.fromiter(chain.from_iterable(lists), np.int64, int(sizes.sum()))
    return Ragged(ids, sizes)


def equal(one: Ragged, other: Ragged) -> bool:
    """Whether both hold the same ids for each text."""
    return np.array_equal(one.sizes, other.sizes) and np.array_equal(one.ids, other.ids)


def hard_texts(backend: Any) -> list[str]:
    """Texts that tell tokenizers apart, the same ones every time.

    Random mixtures of scripts, white space, contractions, compositions and the tokenizer's added
    tokens, whole and cut; long runs of one character.
    """
    draw = random.Random(0)  # noqa: S311 - no secret
    added = [token.content for token in backend.get_added_tokens_decoder().values()]
    added = draw.sample(added, min(len(added), 40))
    mixed = _SYMBOLS + _PLAIN * 4 + [" "] * 40
    ascii_only = [symbol for symbol in mixed if symbol.isascii()]
    texts = []
    for symbols in [mixed, ascii_only] * _PROOFS:
        special = draw.sample(added, min(len(added), 1))
        texts.append("".join(draw.choices(symbols + special, k=draw.randrange(1, 40))))
    texts += [" ".join(draw.choices(_PLAIN, k=12)) for _ in range(_PROOFS // 2)]
    texts += [f"a {token}b {token[:-1]} {token} c" for token in added]
    texts += [symbol * 70 for symbol in _SYMBOLS]
    return texts
