"""What the d2t and t2d of other projects mean: offsets or absolute ids, in any order.

Every rule that could decide wrongly refuses instead: a wrong reading gives a draft that proposes
other tokens than it was trained for, and no engine notices.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vtrim import vocab
from vtrim.errors import InputError
from vtrim.vocab import DraftVocab, Ids

Meaning = Literal["offsets", "absolute", "mask"]


@dataclass(frozen=True, eq=False)
class FoundVocab:
    """A vocabulary as it was stored.

    ids: [k] target id of each draft row, in the file's order. target_vocab_size: V, None when
    nothing told it. meaning: how its numbers were read. told: whether the file itself tells V.
    """

    ids: Ids
    target_vocab_size: int | None
    meaning: Meaning
    told: bool = True

    @property
    def order(self) -> Ids:
        """[k] where the row of each kept id, ascending, lies in the file."""
        return np.argsort(self.ids, kind="stable")

    @property
    def is_sorted(self) -> bool:
        """Whether the rows lie in ascending order of their ids already."""
        return bool(np.all(np.diff(self.ids) > 0))

    def vocab(self, origin: str) -> DraftVocab:
        """The vocabulary itself.

        Raises:
            InputError: V is unknown, an id stands twice or lies outside the target's head.
        """
        if self.target_vocab_size is None:
            raise InputError(
                f"{origin}: does not tell the rows of the target's LM head; "
                "give --target-vocab-size, --target or --run."
            )
        try:
            return DraftVocab.of(self.ids.tolist(), self.target_vocab_size)
        except InputError as error:
            raise InputError(f"{origin}: {error}") from error


def as_ints(values: Any, origin: str, what: str) -> Ids:
    """``values`` (tensor, array or list) as int64 [n].

    Raises:
        InputError: no one-dimensional row of whole numbers.
    """
    return vocab.as_ints(_array(values), origin, what)


def as_mask(values: Any, origin: str, what: str = "t2d") -> npt.NDArray[np.bool_]:
    """``values`` (tensor, array or list of bool, or of 0 and 1) as bool [V].

    Raises:
        InputError: no one-dimensional mask.
    """
    return vocab.as_mask(_array(values), origin, what)


def find_ids(
    d2t: Ids | None,
    t2d: npt.NDArray[np.bool_] | None,
    target_vocab_size: int | None,
    origin: str,
    meaning: Meaning | None = None,
    *,
    usual: Meaning | None = None,
) -> FoundVocab:
    """The ids behind a stored d2t, t2d, or both.

    meaning: how to read d2t, when that is known. usual: what to take when both readings fit.

    Raises:
        InputError: the two disagree, no reading fits, or both do and nothing decides.
    """
    size = target_vocab_size if t2d is None else int(t2d.size)
    if d2t is None:
        if t2d is None:
            raise InputError(f"{origin}: holds neither d2t nor t2d; not a draft vocabulary.")
        return FoundVocab(np.flatnonzero(t2d), size, "mask")
    readings: dict[Meaning, Ids] = {"offsets": d2t + np.arange(d2t.size), "absolute": d2t}
    fitting = {
        name: ids
        for name, ids in readings.items()
        if meaning in (None, name) and _fits(ids, size, t2d)
    }
    if not fitting:
        raise InputError(_no_reading(origin, d2t, t2d, size, meaning))
    if len(fitting) == 2 and usual is not None:
        return FoundVocab(fitting[usual], size, usual, told=t2d is not None)
    if len(fitting) == 2 and d2t.size > 1:  # of one number, id 0, both say the same
        raise InputError(_both_readings(origin, d2t, size))
    found, ids = next(iter(fitting.items()))
    return FoundVocab(ids, size, found, told=t2d is not None)


def _fits(ids: Ids, size: int | None, t2d: npt.NDArray[np.bool_] | None) -> bool:
    """Whether ``ids`` are distinct rows of the head, and those of the mask where there is one."""
    if ids.size == 0 or ids.min() < 0 or (size is not None and ids.max() >= size):
        return False
    ordered = np.sort(ids)
    if np.any(ordered[1:] == ordered[:-1]):
        return False
    return t2d is None or np.array_equal(np.flatnonzero(t2d), ordered)


def _both_readings(origin: str, d2t: Ids, size: int | None) -> str:
    size_first = "" if size is not None else "give --target-vocab-size, or "
    return (
        f"{origin}: its {d2t.size:,} numbers can be offsets or absolute token ids; {size_first}say "
        "which with --format modelopt (offsets) or --format hot-token-ids (ids). Where that cannot "
        "be said, import it first: "
        f"vtrim vocab import {shlex.quote(origin)} --format NAME --to ids.safetensors"
    )


def _no_reading(
    origin: str,
    d2t: Ids,
    t2d: npt.NDArray[np.bool_] | None,
    size: int | None,
    meaning: Meaning | None,
) -> str:
    if t2d is not None:
        return (
            f"{origin}: d2t ({d2t.size:,} entries) and t2d ({int(t2d.sum()):,} of {t2d.size:,}) "
            "name other ids, whether d2t is read as offsets or as absolute ids."
        )
    span = f"{d2t.min()} to {d2t.max()}" if d2t.size else "none"
    head = "" if size is None else f" of a head of {size:,} rows"
    how = f"as {meaning}" if meaning else "neither as offsets nor as absolute ids"
    return (
        f"{origin}: its {d2t.size:,} numbers ({span}) are not distinct token ids{head}, "
        f"read {how}. Is it another target's?"
    )


def _array(values: Any) -> Any:
    """A tensor of whole numbers or truth values as an array; anything else as it is."""
    if not isinstance(values, Tensor) or values.layout != torch.strided or values.is_quantized:
        return values
    if values.is_floating_point() or values.is_complex():
        return values
    return values.cpu().numpy()
