"""Byte-level BPE counted by distinct pre-tokens: each is encoded once, however often it stands.

A pre-token's ids do not depend on its neighbours, and for ASCII text the tokenizer's own split
pattern means the same to Python's ``re``. Both are proved on random text when it is set up.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

_IDENTITY_ON_ASCII = {"NFC", "NFD", "NFKC", "NFKD"}
_MAX_HINTS = 8
_PROOFS = 400
_BLOCK = 10_000

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

        self._split = re.compile(pattern, re.ASCII).findall
        self._model = Tokenizer(backend.model)
        self._hints = hints

    @classmethod
    def build(cls, backend: Any) -> PretokenCounter | None:
        """A counter that gives this tokenizer's ids, or None where that cannot be proved."""
        definition = json.loads(backend.to_str())
        pattern = _split_pattern(definition)
        hints = sorted({token["content"][:2] for token in definition["added_tokens"]})
        if pattern is None or len(hints) > _MAX_HINTS:
            return None
        try:
            counter = cls(backend, pattern, hints)
        except re.error:
            return None
        return counter if counter._agrees_with(backend) else None

    def split(self, text: str) -> list[str] | None:
        """The pre-tokens of a text; None for a text that only the tokenizer itself may split."""
        if not text.isascii() or any(hint in text for hint in self._hints):
            return None
        pieces: list[str] = self._split(text)
        return pieces

    def ids(self, pieces: Mapping[str, int]) -> Iterator[tuple[Ids, Ids]]:
        """(ids, how often each counts) of counted pre-tokens, in blocks."""
        names = list(pieces)
        for start in range(0, len(names), _BLOCK):
            block = names[start : start + _BLOCK]
            spelled = [name.translate(_BYTE_LEVEL) for name in block]
            encodings = self._model.encode_batch_fast(spelled, add_special_tokens=False)
            parts = [encoding.ids for encoding in encodings]
            lengths = np.fromiter(map(len, parts), np.int64, len(parts))
            weights = np.fromiter(map(pieces.__getitem__, block), np.int64, len(block))
            flat = np.fromiter((i for part in parts for i in part), np.int64, int(lengths.sum()))
            yield flat, np.repeat(weights, lengths)

    def _agrees_with(self, backend: Any) -> bool:
        """Whether random ASCII texts get the tokenizer's own ids, one by one."""
        draw = random.Random(0)  # noqa: S311 - no secret
        alphabet = [chr(code) for code in range(128)] + list("  \n\n\t'\"az09AZ.,sStTdDmM") * 6
        words = ["'s", "'LL", "\n\n", "  ", "word", "Word", "2024", "...", "://", "I'm", "\r\n"]
        for _ in range(_PROOFS):
            text = "".join(draw.choices(alphabet + words * 4, k=draw.randrange(1, 40)))
            pieces = self.split(text)
            if pieces is None:
                continue
            found: Counter[int] = Counter()
            for ids, weights in self.ids(Counter(pieces)):
                for token, weight in zip(ids.tolist(), weights.tolist(), strict=True):
                    found[token] += weight
            if found != Counter(backend.encode(text, add_special_tokens=False).ids):
                return False
        return True


def _split_pattern(definition: Mapping[str, Any]) -> str | None:
    """The one split pattern of a byte-level BPE, rewritten for ASCII text; None for all others."""
    normalizer = definition["normalizer"]
    steps = (definition["pre_tokenizer"] or {}).get("pretokenizers", [])
    if definition["model"]["type"] != "BPE" or definition["model"].get("dropout"):
        return None
    if normalizer and normalizer["type"] not in _IDENTITY_ON_ASCII and normalizer != _NO_STEPS:
        return None
    if [step["type"] for step in steps] != ["Split", "ByteLevel"]:
        return None
    split, level = steps
    pattern = split["pattern"].get("Regex")
    if pattern is None or split["behavior"] != "Isolated" or split["invert"]:
        return None
    return None if level["add_prefix_space"] or level["use_regex"] else _to_ascii(pattern)


_NO_STEPS = {"type": "Sequence", "normalizers": []}


def _to_ascii(pattern: str) -> str:
    r"""The pattern with each ``\p{..}`` replaced by its ASCII members."""
    depth = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal depth
        if match[1]:
            members = _ASCII_CLASSES.get(match[1], r"\x80")
            return members if depth else f"[{members}]"
        if match[0].startswith("["):
            depth += 1
        elif match[0] == "]":
            depth -= 1
        return match[0]

    return _CLASS.sub(replace, pattern)
