"""Counts of reply tokens from a stream of sequences: exact integers, memory flat in the rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vtrim.errors import InputError

Ids = npt.NDArray[np.int64]
Weights = npt.NDArray[np.int64] | npt.NDArray[np.bool_]


class MaskedSequence(Protocol):
    """A rendered sample: ids [T], mask [T] True on reply tokens."""

    @property
    def ids(self) -> Ids:
        """Token ids."""

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """True on reply tokens."""

    @property
    def heldout(self) -> bool:
        """Whether the sample belongs to the held-out split."""


# (ids, weights, heldout): how often each id counts; None: each once, all are reply tokens.
Counted = tuple[Ids, Weights | None, bool]


def count(samples: Iterable[MaskedSequence | Counted], vocab_size: int) -> tuple[Ids, Ids]:
    """How often each id stands in the replies: ([V] of all samples, [V] of the held-out ones).

    Raises:
        InputError: an id has no row in a vocabulary of that size.
    """
    parts = {heldout: np.zeros(vocab_size, dtype=np.int64) for heldout in (False, True)}
    for sample in samples:
        if isinstance(sample, tuple):
            ids, weights, heldout = sample
        else:
            ids, weights, heldout = sample.ids, sample.mask, sample.heldout
        if weights is not None and weights.dtype == np.bool_:
            ids, weights = ids[weights], None
        if not ids.size:
            continue
        if ids.min() < 0 or ids.max() >= vocab_size:
            wrong = int(ids.max()) if ids.max() >= vocab_size else int(ids.min())
            raise InputError(
                f"token id {wrong} has no row in the target's head of {vocab_size} rows. "
                "Tokenizer and target config belong to different models."
            )
        np.add.at(parts[heldout], ids, 1 if weights is None else weights)
    return parts[False] + parts[True], parts[True]
