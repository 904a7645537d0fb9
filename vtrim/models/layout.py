"""The portable EAGLE-3 checkpoint: one folder that vLLM, SGLang, TensorRT-LLM and EAGLE load.

config.json and one model.safetensors; names are the draft's own state-dict names, plus ``d2t``
(int64 offsets) and ``t2d`` (bool) when the vocabulary is trimmed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vtrim.artifacts import atomic_path, write_json, write_text
from vtrim.errors import InputError
from vtrim.models.aux_layers import AuxLayers, default_aux_layers, named_aux_layers
from vtrim.models.draft import Eagle3Draft
from vtrim.models.foreign_config import flat_config, read_config, rope_scaling
from vtrim.models.importing import check_tensors
from vtrim.models.mapping import as_ints, as_mask
from vtrim.models.variants import refuse_variants
from vtrim.shape import DraftShape
from vtrim.vocab import DraftVocab

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class LoadedDraft:
    """A draft read from a folder, with the auxiliary layers it was trained on."""

    model: Eagle3Draft
    vocab: DraftVocab
    aux_layer_ids: tuple[int, int, int]
    config: dict[str, Any]


def draft_config(
    shape: DraftShape,
    vocab: DraftVocab,
    aux_layer_ids: AuxLayers | None,
    target_config: dict[str, Any],
    provenance: dict[str, Any],
) -> dict[str, Any]:
    """The ``config.json`` that all engines accept; ``provenance`` goes under the key ``vtrim``.

    aux_layer_ids: None leaves the choice to the engines' default. The special ids are those of
    ``target_config``.
    """
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_attention_heads": shape.num_attention_heads,
        "num_key_value_heads": shape.num_key_value_heads,
        "head_dim": shape.head_dim,
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "rms_norm_eps": shape.rms_norm_eps,
        "vocab_size": vocab.target_vocab_size,
        "draft_vocab_size": vocab.size,
        "tie_word_embeddings": False,
        "max_position_embeddings": shape.max_position_embeddings,
        "rope_theta": shape.rope_theta,
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "pretraining_tp": 1,
        "bos_token_id": target_config.get("bos_token_id"),
        "eos_token_id": target_config.get("eos_token_id"),
        "pad_token_id": target_config.get("pad_token_id") or 0,
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }
    if aux_layer_ids and aux_layer_ids != _engine_default(shape.num_target_layers):
        low, mid, high = aux_layer_ids
        config["eagle_aux_hidden_state_layer_ids"] = [low, mid, high]  # vLLM: hidden_states index
        config["eagle_config"] = {  # SGLang: the block whose output is taken
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": [low - 1, mid - 1, high - 1],
        }
    config["vtrim"] = dict(provenance)
    if shape.num_target_layers:  # unknown for drafts of others
        config["vtrim"]["num_target_layers"] = shape.num_target_layers
    return config


def save_draft(
    folder: Path, model: Eagle3Draft, vocab: DraftVocab, config: dict[str, Any], card: str
) -> None:
    """Writes a trained draft in bf16; see ``write_draft``."""
    tensors = {
        name: value.detach().to("cpu", torch.bfloat16).contiguous()
        for name, value in model.state_dict().items()
    }
    write_draft(folder, tensors, vocab, config, card)


def write_draft(
    folder: Path,
    weights: Mapping[str, Tensor],
    vocab: DraftVocab,
    config: dict[str, Any],
    card: str,
) -> None:
    """Writes the folder's files one by one, each atomically, the weights last, as they are.

    Raises:
        InputError: the folder cannot be made, or the disk is full; no file is left under a final
            name half-written.
    """
    tensors = weights_bytes(with_mapping(weights, vocab))
    write_files(folder, config, {"README.md": card}, WEIGHTS, tensors)


def with_mapping(weights: Mapping[str, Tensor], vocab: DraftVocab) -> dict[str, Tensor]:
    """The tensors of a draft's file: no mapping where the vocabulary is the target's."""
    if vocab.is_full:
        return dict(weights)
    mapping = {"d2t": torch.from_numpy(vocab.d2t), "t2d": torch.from_numpy(vocab.t2d)}
    return {**weights, **mapping}


def weights_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """The safetensors file of ``tensors``; the same tensors give the same bytes."""
    from safetensors.torch import save

    return save(dict(tensors), metadata={"format": "pt"})


def write_files(
    folder: Path, config: dict[str, Any], texts: Mapping[str, str], name: str, weights: bytes
) -> None:
    """Writes ``config.json``, ``texts`` by their names, and last the weights under ``name``.

    Raises:
        InputError: the folder cannot be made, or the disk is full; no file is left under a final
            name half-written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made ({error.strerror or error}).") from error
    needed, free = len(weights), shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(f"{folder}: the draft needs {needed} bytes, the disk has {free} free.")
    (folder / name).unlink(missing_ok=True)  # never an older draft's under this config
    write_json(folder / "config.json", config)
    for file, text in texts.items():
        write_text(folder / file, text)
    with atomic_path(folder / name) as temporary:
        temporary.write_bytes(weights)


def load_draft(
    folder: str | Path,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    num_target_layers: Callable[[], int] | None = None,
) -> LoadedDraft:
    """Reads a draft in the portable layout.

    num_target_layers: asks the target; called only for drafts of others, which do not tell it.

    Raises:
        InputError: the folder or a file is missing, incomplete, or not an EAGLE-3 draft; a weight
            is quantised or not finite.
    """
    folder = Path(folder)
    if not folder.exists():
        raise InputError(f"{folder}: no such draft. Train one with `vtrim train-draft`.")
    config = read_config(folder / "config.json")
    if config.get("vocab_size") is None:
        raise InputError(f"{folder / 'config.json'}: names no vocab_size; not a draft's config.")
    tensors = _read_weights(folder / WEIGHTS)
    if "fc.weight" not in tensors or "lm_head.weight" not in tensors:
        raise InputError(
            f"{folder / WEIGHTS}: holds no fc.weight and lm_head.weight; not an EAGLE-3 draft."
        )
    for name in ("fc.weight", "lm_head.weight"):
        if tensors[name].ndim != 2:
            shape_found = list(tensors[name].shape)
            raise InputError(f"{folder / WEIGHTS}: {name} is {shape_found}; a matrix is expected.")
    refuse_variants(flat_config(config), tensors.keys(), str(folder / WEIGHTS))
    vocab = _read_vocab(folder, tensors, config)
    shape = _read_shape(config, tensors, num_target_layers)
    model = Eagle3Draft(shape, torch.from_numpy(vocab.ids))
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        lines = " ".join(str(error).split())
        raise InputError(f"{folder / WEIGHTS}: not this layout ({lines})") from error
    check_tensors(tensors, shape, vocab, str(folder / WEIGHTS))
    aux = _aux_layers(folder, config, shape.num_target_layers)
    model = model.to(device, dtype).eval().requires_grad_(False)
    return LoadedDraft(model, vocab, aux, config)


def _aux_layers(folder: Path, config: dict[str, Any], num_layers: int) -> tuple[int, int, int]:
    """The states that config.json names (hidden_states indices), else the engines' default."""
    known = num_layers if num_layers > 3 else 0  # 1 stands for an unknown target
    named = named_aux_layers(config, known, str(folder / "config.json"), [])
    return named or default_aux_layers(num_layers)


def _read_weights(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; the draft folder is incomplete.") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (SafetensorError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: incomplete or not a safetensors file ({error}).") from error


def _read_vocab(folder: Path, tensors: dict[str, Tensor], config: dict[str, Any]) -> DraftVocab:
    """Takes d2t and t2d out of ``tensors``; both absent means the full vocabulary."""
    origin = str(folder / WEIGHTS)
    rows, target_rows = tensors["lm_head.weight"].shape[0], config["vocab_size"]
    d2t, t2d = tensors.pop("d2t", None), tensors.pop("t2d", None)
    if d2t is None and t2d is None and rows == target_rows:
        return DraftVocab.full(target_rows)
    if d2t is None or t2d is None:
        raise InputError(
            f"{origin}: {rows} head rows for a target of {target_rows}, but d2t or t2d "
            "is missing; without them draft ids would be taken for target ids."
        )
    offsets, mask = as_ints(d2t, origin, "d2t"), as_mask(t2d, origin)
    if offsets.size != rows:
        raise InputError(f"{origin}: {offsets.size} entries in d2t, {rows} head rows.")
    if mask.size != target_rows:
        raise InputError(
            f"{origin}: t2d has {mask.size:,} entries, config.json says vocab_size "
            f"{target_rows:,}. `vtrim trim` writes the draft with the former."
        )
    ids = offsets + np.arange(rows)
    if not np.array_equal(np.flatnonzero(mask), ids):
        raise InputError(f"{origin}: d2t and t2d disagree; d2t must hold offsets.")
    return DraftVocab.of(ids, mask.size)


def _read_shape(
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    num_target_layers: Callable[[], int] | None,
) -> DraftShape:
    """The draft's dimensions from its own config; layer count from the provenance entry."""
    scaling = rope_scaling(config)
    if scaling is not None:
        raise InputError(
            f"config.json asks for rope scaling '{scaling}', which vtrim's decoder cannot apply. "
            "`vtrim trim --rope-theta BASE` writes the plain base the draft was trained with."
        )
    layers = (config.get("vtrim") or {}).get("num_target_layers") or 0
    if layers == 0 and num_target_layers is not None:
        layers = num_target_layers()
    if layers == 0 and not flat_config(config).get("eagle_aux_hidden_state_layer_ids"):
        raise InputError(
            "config.json names neither the target's layer count nor auxiliary layers; "
            "import the draft first."
        )
    source = {**config, "num_hidden_layers": layers or 1}
    width = tensors["fc.weight"].shape[1] // 3
    return DraftShape.from_target_config(source, {"target_hidden_size": width})


def _engine_default(num_layers: int) -> tuple[int, int, int]:
    """What engines read when no layer ids are written."""
    return 2, num_layers // 2, num_layers - 3
