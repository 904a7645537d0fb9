"""EAGLE-3 drafts of other projects, read into vtrim's naming: EAGLE, SpecForge, ModelOpt, more.

What a checkpoint leaves open (the target's rows, an own head, auxiliary layers) is taken from the
target where one is named; what would change what the draft computes is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vtrim.errors import InputError
from vtrim.models.aux_layers import check_aux_layers, named_aux_layers
from vtrim.models.checkpoint import Checkpoint
from vtrim.models.draft import Eagle3Draft
from vtrim.models.draft_vocab import draft_mapping
from vtrim.models.foreign_config import (
    check_residual,
    flat_config,
    layout_name,
    read_config,
    verifier_name,
)
from vtrim.models.import_notes import note_config
from vtrim.models.mapping import FoundVocab
from vtrim.models.target import FLOATS
from vtrim.models.variants import refuse_variants
from vtrim.shape import DraftShape
from vtrim.vocab import DraftVocab

_LAYER = (
    *(f"self_attn.{name}_proj" for name in "qkvo"),
    *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
    *("hidden_norm", "input_layernorm", "post_attention_layernorm"),
)
TRUNK = ("fc.weight", "norm.weight", *(f"midlayer.{name}.weight" for name in _LAYER))
HEAD = "lm_head.weight"
# not the draft's own: copies of the target's tensors, and tables that are computed
_DROPPED = ("embed_tokens.weight", "verifier_lm_head.weight", "verifier_norm.weight", "inv_freq")


@dataclass(frozen=True, kw_only=True)
class ImportTarget:
    """What an import may ask of the draft's target.

    head: gives its LM head rows [V, d]; called only where the draft has none of its own.
    """

    name: str
    num_layers: int
    vocab_size: int
    hidden_size: int
    head: Callable[[], Tensor]


@dataclass(frozen=True, kw_only=True)
class ImportedDraft:
    """A draft in vtrim's naming, its weights in their own dtype, not a bit changed.

    tensors: every weight of Eagle3Draft, head rows in ascending order of the target ids.
    config: the draft's own, nested parts flattened. shape: its num_target_layers is 0 where
    neither config nor target told it. aux_layer_ids: hidden_states indices; None where the
    config names none, so that engines take their default. notes: what was converted. verifier: the
    target that speculators' config names.
    """

    folder: Path
    layout: str
    config: dict[str, Any]
    shape: DraftShape
    vocab: DraftVocab
    tensors: dict[str, Tensor]
    aux_layer_ids: tuple[int, int, int] | None
    notes: tuple[str, ...]
    verifier: str | None = None

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the head."""
        return self.tensors[HEAD].dtype

    @property
    def provenance(self) -> dict[str, Any]:
        """What vtrim noted when it wrote the draft; empty for drafts of others."""
        found = self.config.get("vtrim")
        return found if isinstance(found, dict) else {}

    @property
    def target_name(self) -> str | None:
        """The target that the draft names, in vtrim's note or in speculators' config."""
        named = self.provenance.get("target") or self.verifier
        return str(named) if named else None


def import_draft(
    folder: Path,
    target: ImportTarget | None = None,
    *,
    rope_theta: float | None = None,
    aux_layer_ids: tuple[int, int, int] | None = None,
) -> ImportedDraft:
    """Reads a draft of any layout.

    rope_theta: base it was trained with, where the config says otherwise. aux_layer_ids:
    hidden_states indices, where the config's are missing or in doubt.

    Raises:
        InputError: files are missing, cut or foreign, the draft is a variant, or something is
            missing that only the target has.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such draft folder.")
    config = read_config(folder / "config.json")
    checkpoint = Checkpoint(folder)
    flat, names = flat_config(config), own_names(checkpoint)
    origin = str(checkpoint.path)
    refuse_variants(flat, names, origin)
    check_residual(config, flat, folder)
    notes: list[str] = []
    found = draft_mapping(checkpoint, config, target.vocab_size if target else None)
    vocab = found.vocab(origin)
    tensors = _trunk(checkpoint, names)
    tensors[HEAD] = _head(checkpoint, names, found, target, notes)
    if found.meaning == "absolute":
        notes.append("d2t held absolute ids, read as such")
    layout = layout_name(config, checkpoint.names)
    note_config(flat, layout, rope_theta, names, vocab, notes)
    shape = _shape(flat, tensors, vocab, target, rope_theta, origin)
    _check_target(shape, target, origin)
    check_tensors(tensors, shape, vocab, origin)
    if aux_layer_ids is not None:
        check_aux_layers(aux_layer_ids, shape.num_target_layers, "--aux-layers")
        if not shape.num_target_layers:
            notes.append("--aux-layers: taken as typed, the target's layers are not known")
    if rope_theta is not None:
        flat["rope_scaling"] = flat["rope_parameters"] = None
    return ImportedDraft(
        folder=folder,
        layout=layout,
        config=flat,
        shape=shape,
        vocab=vocab,
        tensors=tensors,
        aux_layer_ids=aux_layer_ids
        or named_aux_layers(config, shape.num_target_layers, str(folder / "config.json"), notes),
        notes=tuple(notes),
        verifier=verifier_name(config),
    )


def own_names(checkpoint: Checkpoint) -> dict[str, str]:
    """Own name of each tensor -> its name in the file.

    Raises:
        InputError: two tensors bear one name.
    """
    names: dict[str, str] = {}
    for name in checkpoint.names:
        own = name.removeprefix("model.")
        if own.startswith("layers.0."):
            own = "midlayer." + own.removeprefix("layers.0.")
        if own in names:
            raise InputError(f"{checkpoint.path}: holds both {names[own]} and {name}.")
        names[own] = name
    return names


def _trunk(checkpoint: Checkpoint, names: Mapping[str, str]) -> dict[str, Tensor]:
    """All weights but the head; refuses missing and unknown ones."""
    missing = [name for name in TRUNK if name not in names]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(
            f"{checkpoint.path}: has no {missing[0]}{more}; incomplete or not an EAGLE-3 draft."
        )
    known = {*TRUNK, HEAD, "d2t", "t2d"}
    unknown = [n for n in names if n not in known and not n.endswith(_DROPPED)]
    if unknown:
        raise InputError(
            f"{checkpoint.path}: holds {', '.join(sorted(unknown)[:3])}, which a plain EAGLE-3 "
            "draft does not have; vtrim cannot run it."
        )
    return {name: checkpoint.tensor(names[name]).contiguous() for name in TRUNK}


def _head(
    checkpoint: Checkpoint,
    names: Mapping[str, str],
    found: FoundVocab,
    target: ImportTarget | None,
    notes: list[str],
) -> Tensor:
    """[k, d] head rows in ascending order of their target ids."""
    if HEAD in names:
        rows = checkpoint.tensor(names[HEAD])
        if found.is_sorted:
            return rows.contiguous()
        notes.append("head rows stood in another order than their ids; permuted")
        return rows[torch.from_numpy(found.order)].contiguous()
    if target is None:
        raise InputError(
            f"{checkpoint.path}: has no {HEAD}: its head is the target's. Name it with --target."
        )
    notes.append(f"no head of its own: rows of {target.name}")
    dtype = checkpoint.tensor(names["fc.weight"]).dtype
    return target.head()[torch.from_numpy(np.sort(found.ids))].to(dtype).contiguous()


def _shape(
    flat: dict[str, Any],
    tensors: dict[str, Tensor],
    vocab: DraftVocab,
    target: ImportTarget | None,
    rope_theta: float | None,
    origin: str,
) -> DraftShape:
    """Dimensions from the config, held against the tensors."""
    fused = list(tensors["fc.weight"].shape)
    if len(fused) != 2 or fused[1] != 3 * fused[0]:
        wanted = [fused[0], 3 * fused[0]] if len(fused) == 2 else "[d, 3d]"
        raise InputError(
            f"{origin}: fc.weight is {fused}: a plain draft as wide as its target has {wanted}. "
            "Other widths need an own embedding, which vtrim lacks."
        )
    noted = flat.get("vtrim") or {}
    layers = target.num_layers if target else noted.get("num_target_layers") or 0
    source = {"max_position_embeddings": 2048, **flat, "vocab_size": vocab.target_vocab_size}
    source["num_hidden_layers"] = layers or 1
    if rope_theta is not None:
        source |= {"rope_theta": rope_theta, "rope_scaling": None, "rope_parameters": None}
    try:
        shape = DraftShape.from_target_config(source)
    except InputError as error:
        raise InputError(f"{origin}: {error}") from error
    return replace(shape, num_target_layers=layers)


def check_tensors(
    tensors: Mapping[str, Tensor], shape: DraftShape, vocab: DraftVocab, origin: str
) -> None:
    """Refuses weights that are not those of a draft of this shape, or that no draft can hold.

    Raises:
        InputError: names the first that has another shape, holds no floating-point numbers, or
            one that is not finite.
    """
    with torch.device("meta"):
        model = Eagle3Draft(shape, torch.empty(vocab.size, dtype=torch.int64))
    for name, wanted in model.state_dict().items():
        found = tensors[name]
        if found.shape != wanted.shape:
            raise InputError(
                f"{origin}: {name} is {list(found.shape)}, config.json and vocabulary mean "
                f"{list(wanted.shape)}."
            )
        if found.dtype not in FLOATS:
            kind = str(found.dtype).removeprefix("torch.")
            raise InputError(f"{origin}: {name} holds {kind} numbers, not plain weights.")
        if not bool(torch.isfinite(found).all()):
            raise InputError(f"{origin}: {name} holds numbers that are not finite (NaN, infinity).")


def _check_target(shape: DraftShape, target: ImportTarget | None, origin: str) -> None:
    """Refuses a draft that fits no row or no state of the target."""
    if target is None:
        return
    facts = {
        "LM head rows": (shape.target_vocab_size, target.vocab_size),
        "hidden size": (shape.target_hidden_size, target.hidden_size),
    }
    for what, (its, wanted) in facts.items():
        if its != wanted:
            raise InputError(
                f"{origin}: made for another target: {its:,} {what}, {target.name} has {wanted:,}."
            )
