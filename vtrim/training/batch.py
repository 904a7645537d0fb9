"""A micro-batch: packed or padded ids, the rows that are trained, what the target says of them.

Everything about the layout is known on the host before the device does anything: which rows each
unroll step trains and which of the target's states judges them. The step itself never asks back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vtrim.training.rows import row_mask, teacher_positions
from vtrim.training.settings import MaskAlignment


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


@dataclass(frozen=True, eq=False)
class Rows:
    """The trained rows of a micro-batch of B sequences, each of one or more documents.

    ids: [B, T] padded right with 0; start: [B, T] where the document of each token begins (RoPE
    position = index - start; keys before it are not seen); position: [B, R] index t of each row;
    valid: [B, R]. The n trained (row, step) pairs, ordered by the target state that judges them:
    flat: [n] place in the stacked outputs [S, B, R]; step: [n]; slot: [n] number of the state.
    On the host: first_row [m + 1], the first pair of each state; counts, pairs of each step;
    length, tokens that are no padding.
    """

    ids: Tensor
    start: Tensor
    position: Tensor
    valid: Tensor
    flat: Tensor
    step: Tensor
    slot: Tensor
    first_row: npt.NDArray[np.int64]
    counts: tuple[int, ...]
    length: int


@dataclass(frozen=True)
class Features:
    """The target's view of a micro-batch.

    embeds: [B, T, d] input embeddings; aux: [B, T, 3d]; hidden: [m, d] final states of the
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


def make_rows(
    bins: Sequence[Sequence[TrainSample]],
    ttt_steps: int,
    alignment: MaskAlignment,
    device: str = "cpu",
) -> Rows:
    """Lays documents out, one bin a sequence, and gathers the rows that any step trains."""
    batch = len(bins)
    length = max(sum(s.ids.size for s in samples) for samples in bins)
    ids = np.zeros((batch, length), dtype=np.int64)
    start = np.tile(np.arange(length), (batch, 1))
    pairs: list[npt.NDArray[np.int64]] = []  # columns: step, sequence, index of t, slot
    states = 0
    for b, samples in enumerate(bins):
        at = 0
        for sample in samples:
            end = at + sample.ids.size
            ids[b, at:end] = sample.ids
            start[b, at:end] = at
            found, count = _pairs(sample, ttt_steps, alignment)
            pairs.append(found + np.array([0, b, at, states]))
            states += count
            at = end
    step, sequence, index, slot = np.concatenate(pairs).T
    position, valid, row = _gather(sequence, index, batch)
    order = np.argsort(slot, kind="stable")
    flat = (step * batch + sequence) * position.shape[1] + row

    def place(values: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(device, non_blocking=True)

    return Rows(
        ids=place(ids),
        start=place(start),
        position=place(position),
        valid=place(valid),
        flat=place(flat[order]),
        step=place(step[order]),
        slot=place(slot[order]),
        first_row=np.searchsorted(slot[order], np.arange(states + 1)),
        counts=tuple(np.bincount(step, minlength=ttt_steps).tolist()),
        length=sum(s.ids.size for samples in bins for s in samples),
    )


def _pairs(
    sample: TrainSample, ttt_steps: int, alignment: MaskAlignment
) -> tuple[npt.NDArray[np.int64], int]:
    """[n, 4] step, 0, row t, judging state of one sample; and how many states it has."""
    judges = teacher_positions(sample.loss_mask)
    slot_of = np.full(sample.ids.size, -1, dtype=np.int64)
    slot_of[judges] = np.arange(judges.size)
    step, t = np.nonzero(row_mask(sample.loss_mask, ttt_steps, alignment))
    return np.stack([step, np.zeros_like(t), t, slot_of[t + 1 + step]], axis=1), judges.size


def _gather(
    sequence: npt.NDArray[np.int64], index: npt.NDArray[np.int64], batch: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """The rows any step trains: position and valid [B, R], and each pair's place among them."""
    kept = [np.unique(index[sequence == b]) for b in range(batch)]
    width = max(1, max(rows.size for rows in kept))
    position = np.zeros((batch, width), dtype=np.int64)
    valid = np.zeros((batch, width), dtype=np.bool_)
    row = np.zeros_like(index)
    for b, rows in enumerate(kept):
        position[b, : rows.size] = rows
        valid[b, : rows.size] = True
        own = sequence == b
        row[own] = np.searchsorted(rows, index[own])
    return position, valid, row
