"""Byte-level BPE on ASCII text without the tokenizer's own splitter, which costs most of its time.

For ASCII text the split patterns mean the same to Python's ``re``, and a pre-token's ids do not
depend on its neighbours: so each distinct one is encoded once. That both hold is proved on hard
texts by whoever uses this (see ``words``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from vtrim.chat.encoders import Ids, Ragged

_NO_STEPS = {"type": "Sequence", "normalizers": []}
_IDENTITY_ON_ASCII = {"NFC", "NFD", "NFKC", "NFKD"}
_MAX_HINTS = 8
_BLOCK = 256
_SPLIT_AT_ONCE = 5000
_BETWEEN = "\u2028"
# The pattern that a ByteLevel step splits by where it is told to (GPT-2's).
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

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


class Pretokens:
    """ids of ASCII texts by distinct pre-token; see ``build``."""

    def __init__(self, backend: Any, patterns: Sequence[str], hints: Sequence[str]) -> None:
        from tokenizers import Tokenizer
        from tokenizers.pre_tokenizers import CharDelimiterSplit

        self._steps = [re.compile(f"({pattern})", re.ASCII) for pattern in patterns]
        self._model = Tokenizer(backend.model)
        self._model.pre_tokenizer = CharDelimiterSplit(_BETWEEN)
        self._unfit = re.compile("|".join([*map(re.escape, hints), r"\s\Z"])).search

    @classmethod
    def build(cls, backend: Any) -> Pretokens | None:
        """What splits as this tokenizer does; None for one of another make."""
        patterns = _split_patterns(backend)
        added = backend.get_added_tokens_decoder().values()
        hints = sorted({token.content[:2] for token in added})
        if patterns is None or len(hints) > _MAX_HINTS:
            return None
        try:
            made = cls(backend, patterns, hints)
        except re.error:
            return None
        return made if all(step.groups == 1 for step in made._steps) else None

    def takes(self, word: str) -> bool:
        """Whether a word is ASCII, without the start of an added token or white space at its end.

        The last word of a text may end so; it would be split otherwise with another behind it.
        """
        return word.isascii() and self._unfit(word) is None

    def split(self, text: str) -> list[str]:
        """The pre-tokens of a text."""
        pieces = [text]
        for step in self._steps:
            pieces = [part for piece in pieces for part in _split(step, piece)]
        return pieces

    def encode(self, words: Sequence[str]) -> Ragged:
        """The ids of words, each with a space before it; each of their pre-tokens encoded once.

        None ends with white space: so they are split alike one after the other.
        """
        names: dict[str, int] = {}
        used: list[npt.NDArray[np.int32]] = []
        starts = range(0, len(words), _SPLIT_AT_ONCE)
        for start in starts:
            pieces = self.split(" " + " ".join(words[start : start + _SPLIT_AT_ONCE]))
            for name in dict.fromkeys(pieces):
                names.setdefault(name, len(names))
            used.append(np.fromiter(map(names.__getitem__, pieces), np.int32, len(pieces)))
        encoded = self._encode(list(names))
        lengths = np.fromiter(map(len, names), np.int64, len(names))
        parts = [
            _joined(encoded, lengths, places, words[start : start + _SPLIT_AT_ONCE])
            for start, places in zip(starts, used, strict=True)
        ]
        return Ragged(*map(np.concatenate, zip(*parts, strict=True))) if parts else encoded

    def _encode(self, names: Sequence[str]) -> Ragged:
        """Ids of pre-tokens. Many go into one text, split at a character that ASCII has not."""
        blocks = [
            _BETWEEN.join(names[start : start + _BLOCK]).translate(_BYTE_LEVEL)
            for start in range(0, len(names), _BLOCK)
        ]
        ids: list[list[int]] = []
        places: list[Ids] = []
        for number, block in enumerate(blocks):
            encoding = self._model.encode(block, add_special_tokens=False)
            ids.append(encoding.ids)
            places.append(np.asarray(encoding.word_ids, dtype=np.int64) + number * _BLOCK)
        joined = np.concatenate(places) if places else np.zeros(0, np.int64)
        return Ragged(
            np.fromiter(chain.from_iterable(ids), np.int64, joined.size),
            np.bincount(joined, minlength=len(names)),
        )


def _split(step: re.Pattern[str], text: str) -> list[str]:
    """The matches in a text and what lies between them."""
    matches = step.findall(text)
    if sum(map(len, matches)) == len(text):
        return matches
    return [part for part in step.split(text) if part]


def _joined(
    encoded: Ragged, lengths: Ids, places: npt.NDArray[np.int32], words: Sequence[str]
) -> Ragged:
    """Ids of words from those of their pre-tokens.

    encoded, lengths: ids and characters of the known pre-tokens; places: [pieces] the pre-tokens
    of all words, one after the other.
    """
    sizes, starts = encoded.sizes[places], (np.cumsum(encoded.sizes) - encoded.sizes)[places]
    ends = np.cumsum(sizes)
    ids = encoded.ids[np.arange(sizes.sum()) + np.repeat(starts - (ends - sizes), sizes)]
    word_ends = np.cumsum(np.fromiter((len(word) + 1 for word in words), np.int64, len(words)))
    last = np.searchsorted(np.cumsum(lengths[places]), word_ends)
    return Ragged(ids, np.diff(ends[last], prepend=0))


def _split_patterns(backend: Any) -> list[str] | None:
    """The split patterns of a byte-level BPE, in order, for ASCII text; None for all others."""
    normalizer, splitter = _definition(backend.normalizer), _definition(backend.pre_tokenizer)
    if normalizer and normalizer["type"] not in _IDENTITY_ON_ASCII and normalizer != _NO_STEPS:
        return None
    steps = splitter.get("pretokenizers", [splitter])
    if not steps or steps[-1].get("type") != "ByteLevel" or steps[-1]["add_prefix_space"]:
        return None
    found = [_pattern(step) for step in steps[:-1]]
    if steps[-1]["use_regex"]:
        found.append(_to_ascii(_GPT2))
    patterns = [pattern for pattern in found if pattern is not None]
    return patterns if len(patterns) == len(found) else None


def _pattern(step: dict[str, Any]) -> str | None:
    """The pattern of which a step makes each match a piece."""
    if step["type"] == "Digits":
        return "[0-9]" if step["individual_digits"] else "[0-9]+"
    if step["type"] != "Split" or step["behavior"] != "Isolated" or step["invert"]:
        return None
    pattern = step["pattern"].get("Regex")
    return None if pattern is None else _to_ascii(pattern)


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
