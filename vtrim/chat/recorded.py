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
        RowError: they are no whole numbers, or do not belong together.
    """
    given = row.get("input_ids")
    if given is None:
        return None
    name = next((name for name in (*MASKS, "labels") if row.get(name) is not None), None)
    if name is None:
        return None
    ids, marks = _integers(given, "input_ids", "iuf"), _integers(row[name], name, "biuf")
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


def _integers(values: Any, name: str, kinds: str) -> npt.NDArray[np.int64]:
    """Whole numbers as they stand, or as floats that are whole. kinds: NumPy's, of the values."""
    try:
        given = np.asarray(values)
    except ValueError as error:
        raise RowError("bad recorded ids", f"{name} holds lists of different lengths") from error
    with np.errstate(invalid="ignore"):  # not a number, or beyond 64 bits: unequal below
        whole = given.astype(np.int64) if given.dtype.kind in kinds else None
    if whole is None or not np.array_equal(whole, given):
        raise RowError("bad recorded ids", f"{name} holds no whole numbers")
    return whole
