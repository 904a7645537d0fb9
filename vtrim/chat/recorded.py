"""Rows that hold token ids as a target emitted them, and which of them are the reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vtrim.chat.turns import RowError

# Where rows mark their reply tokens: 0 or 1 for each id; ``labels`` instead repeats the ids.
MASKS = ("loss_mask", "assistant_masks", "completion_mask")
NOT_LEARNED = -100


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Token ids as a target emitted them. ids: [T]; mask: [T] True on reply tokens."""

    ids: npt.NDArray[np.int64]
    mask: npt.NDArray[np.bool_]


def recorded_of(row: dict[str, Any]) -> Recorded | None:
    """Recorded ids and mask, where a row has both.

    Raises:
        RowError: they are no integers, or do not belong together.
    """
    given = row.get("input_ids")
    if given is None:
        return None
    name = next((name for name in (*MASKS, "labels") if row.get(name) is not None), None)
    if name is None:
        return None
    try:
        ids, marks = np.asarray(given, dtype=np.int64), np.asarray(row[name], dtype=np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise RowError("bad recorded ids", f"input_ids or {name} holds no integers") from error
    if ids.ndim != 1 or ids.shape != marks.shape:
        raise RowError("bad recorded ids", f"input_ids has shape {ids.shape}, {name} {marks.shape}")
    if ids.size and ids.min() < 0:
        raise RowError("bad recorded ids", "input_ids holds a negative id")
    if name != "labels":
        return Recorded(ids, marks != 0)
    mask = marks != NOT_LEARNED
    if not np.array_equal(ids[mask], marks[mask]):
        detail = "labels differ from input_ids where they are not -100; are they shifted already?"
        raise RowError("bad recorded ids", detail)
    return Recorded(ids, mask)
