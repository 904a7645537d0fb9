"""Samples of a run: the conversations that coverage counted, split into training and held-out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vtrim.errors import InputError
from vtrim.training.batch import TrainSample
from vtrim.training.rows import row_mask
from vtrim.training.settings import MaskAlignment


class RenderedSample(Protocol):
    """What training needs of a rendered conversation (``vtrim.chat`` makes them)."""

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """[T] token ids."""
        ...

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """[T] True on reply tokens."""
        ...

    @property
    def heldout(self) -> bool:
        """Whether it is never trained on."""
        ...

    @property
    def source(self) -> str | None:
        """Where it comes from."""
        ...


@dataclass(frozen=True)
class Split:
    """Samples to train on and samples held out; ``untrained`` counts those no step trains."""

    train: list[TrainSample]
    heldout: list[TrainSample]
    untrained: int

    @property
    def reply_tokens(self) -> int:
        """Reply tokens in one pass over the training samples."""
        return sum(int(s.loss_mask.sum()) for s in self.train)


def split_samples(samples: Iterable[RenderedSample], alignment: MaskAlignment) -> Split:
    """Sorts rendered samples into training and held-out; drops those without a row to use.

    Held out, rows are exact whatever is trained.

    Raises:
        InputError: nothing is left to train on.
    """
    train: list[TrainSample] = []
    heldout: list[TrainSample] = []
    untrained = 0
    for sample in samples:
        mask = np.asarray(sample.mask, dtype=np.bool_)
        if not row_mask(mask, 1, "exact" if sample.heldout else alignment).any():
            untrained += 1
            continue
        into = heldout if sample.heldout else train
        ids = np.asarray(sample.ids, dtype=np.int64)
        into.append(TrainSample(ids, mask, len(into), sample.source))
    if not train:
        raise InputError(
            f"no sample has a row to train on ({untrained} had fewer than two reply tokens in a "
            "row). Longer replies, or a larger --max-length, are needed."
        )
    return Split(train, heldout, untrained)


def rows_per_step(
    samples: list[TrainSample], ttt_steps: int, alignment: MaskAlignment
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """[n, S] rows that each sample contributes to N at each TTT step."""
    counts = [row_mask(s.loss_mask, ttt_steps, alignment).sum(axis=1) for s in samples]
    return np.asarray(counts, dtype=np.int64).reshape(len(samples), ttt_steps)
