"""The draft vocabulary of an EAGLE-3 checkpoint, whatever its layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vtrim.errors import InputError
from vtrim.models.checkpoint import Checkpoint
from vtrim.models.foreign_config import flat_config
from vtrim.models.mapping import FoundVocab, as_ints, as_mask, find_ids

_ROWS = ("t2d", "embed_tokens.weight", "lm_head.weight")


def draft_mapping(
    checkpoint: Checkpoint, config: Mapping[str, Any], target_vocab_size: int | None
) -> FoundVocab:
    """The vocabulary of an EAGLE-3 checkpoint of any layout; rows in the order of its head.

    V is the length of t2d, else the rows of an embedding, else ``target_vocab_size``, else what
    config.json says. Without d2t and t2d the head must have V rows, or give V when nothing does.

    Raises:
        InputError: d2t and t2d fit no reading, or ids are taken for granted that nothing proves.
    """
    names = {name.removeprefix("model."): name for name in checkpoint.names}
    origin = str(checkpoint.path)
    if not {"fc.weight", "d2t", "t2d"} & set(names):
        raise InputError(f"{origin}: holds no fc.weight, d2t or t2d; not an EAGLE-3 draft.")
    rows = {n: _rows(checkpoint, names[n]) for n in _ROWS if n in names}
    size = rows.get("t2d") or rows.get("embed_tokens.weight") or target_vocab_size
    size = size or flat_config(config).get("vocab_size") or None
    kept = rows.get("lm_head.weight")
    if "d2t" not in names and "t2d" not in names:
        full = size if kept is None else kept
        if full is None or (size is not None and full != size):
            raise InputError(
                f"{origin}: {full or 'no'} head rows for a target of {size}, but no d2t; without "
                "it draft ids would be taken for target ids."
            )
        return FoundVocab(np.arange(full), full, "mask")
    d2t = as_ints(checkpoint.tensor(names["d2t"]), origin, "d2t") if "d2t" in names else None
    t2d = as_mask(checkpoint.tensor(names["t2d"]), origin) if "t2d" in names else None
    # engines take the d2t of a checkpoint for offsets; only what cannot be is read otherwise
    found = find_ids(d2t, t2d, size, origin, usual="offsets")
    if kept is not None and found.ids.size != kept:
        raise InputError(f"{origin}: {found.ids.size:,} ids in its mapping, {kept:,} head rows.")
    return replace(found, told=True)


def _rows(checkpoint: Checkpoint, name: str) -> int:
    """The first dimension of a tensor."""
    shape = checkpoint.shape(name)
    if not shape:
        raise InputError(f"{checkpoint.path}: {name} is one number; rows are expected.")
    return shape[0]
