"""Which rows of a sample are trained at which unroll step.

Row t at step i sees the chain x[t+1..t+1+i] and predicts x[t+2+i] against the teacher at t+1+i.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vtrim.training.settings import MaskAlignment


def row_mask(
    loss_mask: npt.NDArray[np.bool_], ttt_steps: int, alignment: MaskAlignment = "exact"
) -> npt.NDArray[np.bool_]:
    """[S, T] True where row t is trained at step i. loss_mask: [T] True on reply tokens.

    ``exact``: m[t+1] and m[t+2..t+2+i] all hold, the chains that serving visits.
    ``eagle``: m[t+i], as the EAGLE and SpecForge trainers do (one row early); rows whose teacher
    lies past the end are left out in both.
    """
    length = loss_mask.size
    rows = np.zeros((ttt_steps, length), dtype=np.bool_)
    if alignment == "eagle":
        for i in range(ttt_steps):
            count = length - 1 - i  # the teacher of row t is position t+1+i
            if count > 0:
                rows[i, :count] = loss_mask[i : i + count]
        return rows
    chain = np.zeros(length, dtype=np.bool_)
    chain[: length - 1] = loss_mask[1:]
    for i in range(ttt_steps):
        label = np.zeros(length, dtype=np.bool_)
        count = length - 2 - i  # the label of row t is x[t+2+i]
        if count > 0:
            label[:count] = loss_mask[2 + i :]
        chain = chain & label
        rows[i] = chain
    return rows


def teacher_positions(loss_mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """[m] positions whose target states can judge a row: m[p] or m[p-1], ascending.

    They depend on neither the unroll steps nor the alignment, so stored states serve any setting.
    """
    needed = loss_mask.copy()
    needed[1:] |= loss_mask[:-1]
    return np.flatnonzero(needed)
