"""The draft vocabulary: a sorted set of target ids, and the two mappings engines read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vtrim.artifacts import atomic_path, fingerprint_bytes, stable_safetensors
from vtrim.errors import InputError

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DraftVocab:
    """The kept target ids, ascending; ``d2t`` and ``t2d`` are views of them.

    ids: [k] target id of each draft id. target_vocab_size: rows of the target's LM head.
    """

    ids: Ids
    target_vocab_size: int

    @classmethod
    def of(cls, ids: Iterable[int], target_vocab_size: int) -> DraftVocab:
        """A vocabulary of distinct ids in any order.

        Raises:
            InputError: no id, an id twice, or one outside the target's head.
        """
        kept = np.sort(np.fromiter(ids, dtype=np.int64))
        if kept.size == 0:
            raise InputError("a draft vocabulary needs at least one token id.")
        if kept[0] < 0 or kept[-1] >= target_vocab_size:
            raise InputError(
                f"draft vocabulary ids run from {kept[0]} to {kept[-1]}, but the target's LM head "
                f"has rows 0 to {target_vocab_size - 1}. Was it made for another target?"
            )
        if np.any(kept[1:] == kept[:-1]):
            raise InputError("a draft vocabulary holds each token id once; some id stands twice.")
        return cls(kept, target_vocab_size)

    @classmethod
    def full(cls, target_vocab_size: int) -> DraftVocab:
        """Every row of the target's head."""
        return cls(np.arange(target_vocab_size, dtype=np.int64), target_vocab_size)

    @property
    def size(self) -> int:
        """Number of kept ids, k."""
        return int(self.ids.size)

    @property
    def is_full(self) -> bool:
        """Whether every row of the target's head is kept."""
        return self.size == self.target_vocab_size

    @property
    def d2t(self) -> Ids:
        """[k] offsets: target id = draft id + d2t[draft id]."""
        return self.ids - np.arange(self.size, dtype=np.int64)

    @property
    def t2d(self) -> npt.NDArray[np.bool_]:
        """[V] True where a target id is kept."""
        mask = np.zeros(self.target_vocab_size, dtype=np.bool_)
        mask[self.ids] = True
        return mask

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the ids and the target's size."""
        return fingerprint_bytes(f"{self.target_vocab_size}:".encode() + self.ids.tobytes())

    def save(self, path: Path, metadata: dict[str, str] | None = None) -> None:
        """Writes ``d2t`` (int64 offsets) and ``t2d`` (bool) as safetensors, atomically.

        Equal vocabularies and metadata give equal bytes.
        """
        from safetensors.numpy import save

        data = save(
            {"d2t": self.d2t, "t2d": self.t2d}, metadata={"format": "pt", **(metadata or {})}
        )
        with atomic_path(path) as temporary:
            temporary.write_bytes(stable_safetensors(data))

    @classmethod
    def load(cls, path: Path) -> DraftVocab:
        """The vocabulary saved in a safetensors file that holds ``d2t`` and ``t2d``.

        Raises:
            InputError: the file is missing, incomplete or holds something else.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            tensors = load(path.read_bytes())
        except FileNotFoundError as error:
            raise InputError(f"{path}: no such file.") from error
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
        except KeyError as error:  # a type that numpy lacks
            raise InputError(f"{path}: holds numbers of type {error}; no d2t or t2d.") from error
        except SafetensorError as error:
            raise InputError(f"{path}: incomplete or not a safetensors file ({error}).") from error
        if "d2t" not in tensors or "t2d" not in tensors:
            raise InputError(f"{path}: holds no d2t and t2d; not a draft vocabulary.")
        d2t = as_ints(tensors["d2t"], str(path), "d2t")
        t2d = as_mask(tensors["t2d"], str(path))
        ids = d2t + np.arange(d2t.size, dtype=np.int64)
        if not np.array_equal(np.flatnonzero(t2d), ids):
            raise InputError(f"{path}: d2t and t2d disagree; d2t must hold offsets (id - index).")
        try:
            return cls.of(ids, int(t2d.size))
        except InputError as error:
            raise InputError(f"{path}: {error}") from error


def as_ints(values: Any, origin: str, what: str) -> Ids:
    """``values`` (array or list) as int64 [n].

    Raises:
        InputError: no one-dimensional row of whole numbers.
    """
    try:
        array = np.asarray(values)
        whole = array.ndim == 1 and (array.dtype.kind in "iu" or array.size == 0)
    except (TypeError, ValueError, RuntimeError):
        whole = False
    if not whole:
        raise InputError(f"{origin}: {what} is {_kind(values)}, not a list of whole numbers.")
    return array.astype(np.int64)


def as_mask(values: Any, origin: str, what: str = "t2d") -> npt.NDArray[np.bool_]:
    """``values`` (bool, or 0 and 1 in any integer type) as bool [V].

    Raises:
        InputError: no one-dimensional mask.
    """
    try:
        array = np.asarray(values)
        mask = (
            array.ndim == 1
            and array.dtype.kind in "biu"
            and not np.any((array != 0) & (array != 1))
        )
    except (TypeError, ValueError, RuntimeError):
        mask = False
    if not mask:
        raise InputError(f"{origin}: {what} is {_kind(values)}, not a mask of True and False.")
    return array.astype(np.bool_)


def _kind(values: Any) -> str:
    shape = getattr(values, "shape", None)
    if shape is None:
        return f"a {type(values).__name__}"
    return f"a {type(values).__name__} of shape {tuple(shape)} and type {values.dtype}"
