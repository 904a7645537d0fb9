"""What an import says of a draft's config and file: left out, set right, carried along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtrim.models.foreign_config import ignored_base, rope_scaling
from vtrim.vocab import DraftVocab


def note_config(
    flat: Mapping[str, Any],
    layout: str,
    rope_theta: float | None,
    names: Mapping[str, str],
    vocab: DraftVocab,
    notes: list[str],
) -> None:
    """Says what of the config or the file is left out, set right or carried along."""
    size = flat.get("vocab_size")
    if size is not None and size != vocab.target_vocab_size:
        notes.append(
            f"config.json says vocab_size {size:,}; V is {vocab.target_vocab_size:,}, by the "
            "weights or the target"
        )
    if flat.get("tie_word_embeddings"):
        notes.append("tie_word_embeddings was true; the draft keeps its own head")
    if any(name.startswith("embed_tokens") for name in names):
        notes.append("embed_tokens left out: the draft reads the target's")
    ignored = ignored_base(layout, flat)
    if rope_theta is None and ignored is not None:
        notes.append(
            f"rope_theta {ignored:g} is taken from config.json; the trainer of {layout} rotates by "
            "base 10,000 whatever that says: compare with --rope-theta 10000"
        )
    scaling = rope_scaling(flat)
    if scaling is not None and rope_theta is None:
        notes.append(
            f"rope scaling '{scaling}' is carried along; vtrim's own decoder cannot apply it "
            "(--rope-theta writes a plain base)"
        )
