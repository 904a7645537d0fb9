"""A micro-batch: padded ids, the rows that are trained, and what the teacher says about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vtrim.training.rows import row_mask
from vtrim.training.settings import MaskAlignment


@dataclass(frozen=True)
class TrainSample:
    """One conversation ready to train on.

    ids: [T] token ids; loss_mask: [T] True on reply tokens; index: its place in the data.
    """

    ids: npt.NDArray[np.int64]
    loss_mask: npt.NDArray[np.bool_]
    index: int


@dataclass(frozen=True)
class Rows:
    """The trained rows of a micro-batch, gathered to [B, R]; step i uses those in ``trained[i]``.

    ids: [B, T] padded right with 0; position: [B, R] row t; valid: [B, R]; trained: [S, B, R].
    """

    ids: Tensor
    position: Tensor
    valid: Tensor
    trained: Tensor


def make_rows(
    samples: Sequence[TrainSample], ttt_steps: int, alignment: MaskAlignment, device: str = "cpu"
) -> Rows:
    """Pads a micro-batch and gathers the rows that any step trains."""
    masks = [row_mask(s.loss_mask, ttt_steps, alignment) for s in samples]
    kept = [np.flatnonzero(mask.any(axis=0)) for mask in masks]
    batch, length = len(samples), max(s.ids.size for s in samples)
    width = max(1, max(rows.size for rows in kept))
    ids = np.zeros((batch, length), dtype=np.int64)
    position = np.zeros((batch, width), dtype=np.int64)
    valid = np.zeros((batch, width), dtype=np.bool_)
    trained = np.zeros((ttt_steps, batch, width), dtype=np.bool_)
    for b, (sample, mask, rows) in enumerate(zip(samples, masks, kept, strict=True)):
        ids[b, : sample.ids.size] = sample.ids
        position[b, : rows.size] = rows
        valid[b, : rows.size] = True
        trained[:, b, : rows.size] = mask[:, rows]
    as_tensor = torch.from_numpy
    return Rows(
        ids=as_tensor(ids).to(device),
        position=as_tensor(position).to(device),
        valid=as_tensor(valid).to(device),
        trained=as_tensor(trained).to(device),
    )


@dataclass(frozen=True)
class Features:
    """The target's view of a micro-batch.

    embeds: [B, T, d] input embeddings; aux: [B, T, 3d]; teacher: [m, k] softmax of the target's
    logits over D at m positions; slot: [B, T] row of ``teacher`` for a position, -1 where none;
    best: [B, T] target id of the arg-max over the full vocabulary, -1 where not computed;
    best_draft: [B, T] its draft id, -1 where it lies outside D or was not computed.
    """

    embeds: Tensor
    aux: Tensor
    teacher: Tensor
    slot: Tensor
    best: Tensor
    best_draft: Tensor
