"""Rendered text to token ids and reply mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vtrim.chat.template import Span
from vtrim.errors import InputError


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """ids: [T]; mask: [T] True on reply tokens; crossing: [T] True where one crosses their start.

    offsets: [T, 2] characters of each token; spans: [start, end) characters of the replies.
    """

    ids: npt.NDArray[np.int64]
    mask: npt.NDArray[np.bool_]
    crossing: npt.NDArray[np.bool_]
    offsets: npt.NDArray[np.int64]
    spans: tuple[Span, ...]

    @property
    def straddling(self) -> int:
        """Number of tokens that cross the start of a reply."""
        return int(np.count_nonzero(self.crossing))


def fast_backend(tokenizer: Any) -> Any:
    """The ``tokenizers`` object inside a tokenizer, without truncation and padding.

    Raises:
        InputError: there is none, so characters cannot be traced to tokens.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not hasattr(backend, "encode_batch_fast"):
        raise InputError(
            f"{tokenizer.name_or_path}: {type(tokenizer).__name__} has no fast `tokenizers` "
            "backend, which the reply mask needs. Use a repository with a tokenizer.json."
        )
    backend.no_truncation()
    backend.no_padding()
    return backend


def encode(backend: Any, text: str, spans: Sequence[Span]) -> Encoded:
    """Encodes the whole text; a reply token starts in [start, end) of a span.

    Where the ids of the text before a span are a prefix of all ids, this cuts at that prefix. A
    token that begins before the span and ends in it is no reply token; it is counted.
    """
    encoding = backend.encode(text, add_special_tokens=False)
    ids = np.asarray(encoding.ids, dtype=np.int64)
    offsets = np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    mask = np.zeros(ids.size, dtype=np.bool_)
    crosses = np.zeros(ids.size, dtype=np.bool_)
    places = np.arange(ids.size)
    for start, end in spans:
        inside = (offsets[:, 0] >= start) & (offsets[:, 0] < end)
        crossing = (offsets[:, 0] < start) & (offsets[:, 1] > start)
        if text[start - 1 : start] == " ":
            cut, is_prefix = _compare(backend, text[:start], ids)
            crossing = (crossing | ((places == cut) & inside)) & (not is_prefix)
            inside &= places >= cut if is_prefix else places > cut
        mask |= inside
        crosses |= crossing
    return Encoded(ids, mask, crosses, offsets, tuple(spans))


def _compare(backend: Any, prompt: str, ids: npt.NDArray[np.int64]) -> tuple[int, bool]:
    """How many ids the prompt alone shares with the whole, and whether that is all of its ids.

    Byte-level tokenizers may report " word" as starting after its space. The token at the first
    difference from the prompt's own ids takes the place of prompt text, so it starts before the
    reply whatever its offset says.
    """
    alone = np.asarray(backend.encode(prompt, add_special_tokens=False).ids, dtype=np.int64)
    size = min(alone.size, ids.size)
    differs = np.flatnonzero(alone[:size] != ids[:size])
    same = int(differs[0]) if differs.size else size
    return same, same == alone.size
