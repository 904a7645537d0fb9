"""A micro-batch: documents laid end to end, the rows that are trained, what the target says.

Everything about the layout is known on the host before the device does anything: which rows each
unroll step trains, which keys they see and which of the target's states judges them. The step
itself never asks back. There is no padding: a document's length is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vtrim.training.rows import row_mask, teacher_positions
from vtrim.training.settings import MaskAlignment

BLOCK_ROWS = 64  # rows of a block: scores of all heads against one document stay in the caches


@dataclass(frozen=True)
class TrainSample:
    """One conversation ready to train on.

    ids: [T] token ids; loss_mask: [T] True on reply tokens; index: its place in the data; source:
    the data set it comes from, if the file says.
    """

    ids: npt.NDArray[np.int64]
    loss_mask: npt.NDArray[np.bool_]
    index: int
    source: str | None = None


class Block(NamedTuple):
    """Some trained rows of one document, [row, row_end), and the step-0 keys they see.

    Those are [key, key_end), from the start of the document up to the last row's position; all
    rows see the keys before ``sure``, from there on a row sees those up to its own position.
    """

    row: int
    row_end: int
    key: int
    key_end: int
    sure: int


@dataclass(frozen=True, eq=False)
class Rows:
    """The trained rows of a micro-batch: D documents of N tokens in all, laid end to end.

    ids: [1, N]; start: [1, N] where the document of each token begins (RoPE position = index -
    start; keys before it are not seen); position: [1, R] place of each row, ascending.
    The n trained (row, step) pairs, ordered by the target state that judges them: flat: [n] place
    in the stacked outputs [S, 1, R]; step: [n]; slot: [n] number of the state.
    On the host: first_row [m + 1], the first pair of each state; counts, pairs of each step;
    blocks, the rows by document.
    """

    ids: Tensor
    start: Tensor
    position: Tensor
    flat: Tensor
    step: Tensor
    slot: Tensor
    first_row: npt.NDArray[np.int64]
    counts: tuple[int, ...]
    blocks: tuple[Block, ...]

    @property
    def length(self) -> int:
        """Tokens of the micro-batch."""
        return self.ids.shape[1]


@dataclass(frozen=True)
class Features:
    """The target's view of a micro-batch.

    embeds: [1, N, d] input embeddings; aux: [1, N, 3d]; hidden: [m, d] final states of the
    positions that can judge a row, in the order of ``Rows.slot``; log_z: [m] log-sum-exp of their
    logits over the full vocabulary; best: [m] target id of the arg-max; best_draft: [m] its draft
    id, -1 where it lies outside D.
    """

    embeds: Tensor
    aux: Tensor
    hidden: Tensor
    log_z: Tensor
    best: Tensor
    best_draft: Tensor


def to_device(values: npt.NDArray[Any] | Tensor, device: str | torch.device) -> Tensor:
    """Host values on the device. A GPU takes them from pinned memory, and nobody waits for it."""
    held = torch.as_tensor(values)
    if torch.device(device).type == "cuda" and held.device.type == "cpu":
        held = held.pin_memory()
    return held.to(device, non_blocking=True)


def make_rows(
    bins: Sequence[Sequence[TrainSample]],
    ttt_steps: int,
    alignment: MaskAlignment,
    device: str = "cpu",
) -> Rows:
    """Lays the documents of all bins end to end and gathers the rows that any step trains."""
    samples = [sample for documents in bins for sample in documents]
    lengths = np.array([sample.ids.size for sample in samples], dtype=np.int64)
    begins = np.cumsum(lengths) - lengths
    pairs: list[npt.NDArray[np.int64]] = []  # columns: step, row, slot
    positions: list[npt.NDArray[np.int64]] = []
    blocks: list[Block] = []
    states = count = 0
    for sample, begin in zip(samples, begins.tolist(), strict=True):
        found, kept, judges = _pairs(sample, ttt_steps, alignment)
        pairs.append(found + np.array([0, count, states]))
        positions.append(kept + begin)
        blocks += _blocks(kept + begin, count, begin)
        count += kept.size
        states += judges
    step, row, slot = np.concatenate(pairs).T
    order = np.argsort(slot, kind="stable")
    parts = [
        np.concatenate([sample.ids for sample in samples]),
        np.repeat(begins, lengths),
        np.concatenate(positions),
        (step * count + row)[order],
        step[order],
        slot[order],
    ]
    together = to_device(np.concatenate(parts), device).split([part.size for part in parts])
    return Rows(
        ids=together[0][None],
        start=together[1][None],
        position=together[2][None],
        flat=together[3],
        step=together[4],
        slot=together[5],
        first_row=np.searchsorted(slot[order], np.arange(states + 1)),
        counts=tuple(np.bincount(step, minlength=ttt_steps).tolist()),
        blocks=tuple(blocks),
    )


def _pairs(
    sample: TrainSample, ttt_steps: int, alignment: MaskAlignment
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
    """[n, 3] step, row and judging state of one sample; the rows' positions; its states."""
    judges = teacher_positions(sample.loss_mask)
    slot_of = np.full(sample.ids.size, -1, dtype=np.int64)
    slot_of[judges] = np.arange(judges.size)
    step, t = np.nonzero(row_mask(sample.loss_mask, ttt_steps, alignment))
    kept, row = np.unique(t, return_inverse=True)
    return np.stack([step, row, slot_of[t + 1 + step]], axis=1), kept, judges.size


def _blocks(position: npt.NDArray[np.int64], first: int, begin: int) -> list[Block]:
    """The rows of one document in blocks of like size. position: ascending."""
    pieces = -(-position.size // BLOCK_ROWS)
    cuts = [position.size * piece // max(1, pieces) for piece in range(pieces + 1)]
    at = position.tolist()
    return [
        Block(first + low, first + high, begin, at[high - 1] + 1, at[low] + 1)
        for low, high in pairwise(cuts)
    ]
