"""Byte-level BPE counted by distinct pre-tokens: each is encoded once, however often it stands.

A pre-token's ids do not depend on its neighbours, and for ASCII text the tokenizer's own split
pattern means the same to Python's ``re``. Both are proved on random text when it is set up.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

_NO_STEPS = {"type": "Sequence", "normalizers": []}
_IDENTITY_ON_ASCII = {"NFC", "NFD", "NFKC", "NFKD"}
_MAX_HINTS = 8
_PROOFS = 400
_BLOCK = 1000
_BETWEEN = "\u2028"
_FREQUENT = [
    "'s",
    "'LL",
    "I'm",
    "\n\n",
    "\r\n",
    "\n",
    "  ",
    " ",
    "\t",
    "word",
    "Word",
    "2024",
    ".",
    ",",
]

# Unicode classes cut down to ASCII; \x80 stands for "nothing in ASCII".
_ASCII_CLASSES = {
    "L": "A-Za-z",
    "Lu": "A-Z",
    "Ll": "a-z",
    "N": "0-9",
    "Nd": "0-9",
    "P": r"!-#%-*,\-./:;?@\[-\]_{}",
    "S": r"$+<=>\^`|~",
}
_CLASS = re.compile(r"\\p\{(\w+)\}|\\.|\[\^?|\]", re.DOTALL)

# ByteLevel's alphabet: blanks and control characters are shifted up by 256.
_BYTE_LEVEL = {**{code: chr(256 + code) for code in range(33)}, 127: chr(289)}


class PretokenCounter:
    """ids of ASCII texts by distinct pre-token; see ``build``."""

    def __init__(self, backend: Any, pattern: str, hints: list[str]) -> None:
        from tokenizers import Tokenizer
        from tokenizers.pre_tokenizers import CharDelimiterSplit

        self._split = re.compile(pattern, re.ASCII).findall
        self._model = Tokenizer(backend.model)
        self._model.pre_tokenizer = CharDelimiterSplit(_BETWEEN)
        self._hints = hints

    @classmethod
    def build(cls, backend: Any) -> PretokenCounter | None:
        """A counter that gives this tokenizer's ids, or None where that cannot be proved."""
        pattern = _split_pattern(backend)
        added = backend.get_added_tokens_decoder().values()
        hints = sorted({token.content[:2] for token in added})
        if pattern is None or len(hints) > _MAX_HINTS:
            return None
        try:
            counter = cls(backend, pattern, hints)
        except re.error:
            return None
        return counter if counter._agrees_with(backend) else None

    def split(self, text: str) -> list[str] | None:
        """The pre-tokens of a text; None for a text that only the tokenizer itself may split.

        That is one with other characters than ASCII, or with the start of an added token.
        """
        if not text.isascii() or any(hint in text for hint in self._hints):
            return None
        pieces: list[str] = self._split(text)
        return pieces

    def ids(self, pieces: Mapping[str, int]) -> tuple[Ids, Ids]:
        """Ids of counted pre-tokens, and how often each of the ids counts."""
        ids, places = self._encode(list(pieces))
        return ids, np.fromiter(pieces.values(), np.int64, len(pieces))[places]

    def _encode(self, names: list[str]) -> tuple[Ids, Ids]:
        """Ids of all pre-tokens, one after the other, and the place of the pre-token of each id.

        Many pre-tokens go into one text, split at a character that ASCII has not.
        """
        blocks = [
            _BETWEEN.join(names[start : start + _BLOCK]).translate(_BYTE_LEVEL)
            for start in range(0, len(names), _BLOCK)
        ]
        encodings = self._model.encode_batch(blocks, add_special_tokens=False)
        ids = chain.from_iterable(encoding.ids for encoding in encodings)
        places = [
            np.asarray(encoding.word_ids, dtype=np.int64) + number * _BLOCK
            for number, encoding in enumerate(encodings)
        ]
        joined = np.concatenate(places) if places else np.zeros(0, np.int64)
        return np.fromiter(ids, np.int64, joined.size), joined

    def _agrees_with(self, backend: Any) -> bool:
        """Whether random ASCII texts get the tokenizer's own ids, one by one."""
        draw = random.Random(0)  # noqa: S311 - no secret
        symbols = [chr(code) for code in range(128)] + _FREQUENT * 8
        texts = ["".join(draw.choices(symbols, k=draw.randrange(1, 40))) for _ in range(_PROOFS)]
        split = {text: pieces for text in texts if (pieces := self.split(text)) is not None}
        names = [name for pieces in split.values() for name in pieces]
        ids, places = self._encode(names)
        ends = np.searchsorted(places, np.cumsum([len(pieces) for pieces in split.values()]))
        expected = backend.encode_batch_fast(list(split), add_special_tokens=False)
        found = np.split(ids, ends[:-1])
        return all(
            part.tolist() == encoding.ids for part, encoding in zip(found, expected, strict=True)
        )


def _split_pattern(backend: Any) -> str | None:
    """The one split pattern of a byte-level BPE, rewritten for ASCII text; None for all others."""
    if type(backend.model).__name__ != "BPE" or backend.model.dropout is not None:
        return None
    normalizer, splitter = _definition(backend.normalizer), _definition(backend.pre_tokenizer)
    if normalizer and normalizer["type"] not in _IDENTITY_ON_ASCII and normalizer != _NO_STEPS:
        return None
    steps = splitter.get("pretokenizers", [])
    if [step["type"] for step in steps] != ["Split", "ByteLevel"]:
        return None
    split, level = steps
    pattern = split["pattern"].get("Regex")
    if pattern is None or split["behavior"] != "Isolated" or split["invert"]:
        return None
    return None if level["add_prefix_space"] or level["use_regex"] else _to_ascii(pattern)


def _definition(part: Any) -> dict[str, Any]:
    """The JSON form of a normalizer or pre-tokenizer; empty for none."""
    return {} if part is None else dict(json.loads(part.__getstate__()))


def _to_ascii(pattern: str) -> str | None:
    r"""The pattern with each ``\p{..}`` replaced by its ASCII members; None for nested classes."""
    depth = deepest = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal depth, deepest
        if match[1]:
            members = _ASCII_CLASSES.get(match[1], r"\x80")
            return members if depth else f"[{members}]"
        if match[0].startswith("["):
            depth += 1
            deepest = max(deepest, depth)
        elif match[0] == "]":
            depth -= 1
        return match[0]

    rewritten = _CLASS.sub(replace, pattern)
    return rewritten if deepest < 2 else None
