"""A draft written in the layout of another project: names, config and files that its readers know.

Every export imports again to the same tensors, and exports again to the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vtrim.errors import OptionError
from vtrim.models.aux_layers import KEY
from vtrim.models.importing import ImportedDraft
from vtrim.models.layout import (
    WEIGHTS,
    draft_config,
    weights_bytes,
    with_mapping,
    write_files,
)

PICKLE = "pytorch_model.bin"
TRT_FILE = "trtllm.yaml"
SPECULATIVE_TOKENS = 3


@dataclass(frozen=True)
class Verifier:
    """The target as speculators' config names it: a hub id or a folder, and its classes."""

    name: str
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A draft in another layout, not yet on disk.

    weights: the one file of tensors, named ``weights_name``. texts: further files.
    """

    config: dict[str, Any]
    weights_name: str
    weights: bytes
    texts: dict[str, str] = field(default_factory=dict)

    def write(self, folder: Path, card: str) -> None:
        """Writes the folder, each file atomically, the weights last.

        Raises:
            InputError: the folder cannot be made, or the disk is full.
        """
        texts = {**self.texts, "README.md": card}
        write_files(folder, self.config, texts, self.weights_name, self.weights)


def export_draft(draft: ImportedDraft, layout: str, verifier: Verifier | None = None) -> Exported:
    """The draft in one of ``LAYOUTS``; weights keep their dtype and every bit.

    verifier: needed by speculators, which starts the target by the draft's folder.

    Raises:
        OptionError: no such layout, or one whose readers would run another draft than this.
    """
    if layout not in LAYOUTS:
        raise OptionError(f"--to {layout}: no such layout. Known: {', '.join(LAYOUTS)}.")
    return LAYOUTS[layout](draft, imported_config(draft, draft.provenance), verifier)


def imported_config(draft: ImportedDraft, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """The portable ``config.json`` of a draft that was read; its rope scaling is carried along."""
    config = draft_config(
        draft.shape, draft.vocab, draft.aux_layer_ids, draft.config, dict(provenance)
    )
    config["torch_dtype"] = str(draft.dtype).removeprefix("torch.")
    for name in ("rope_scaling", "rope_parameters"):
        if draft.config.get(name):
            config[name] = draft.config[name]
    return config


Export = Callable[[ImportedDraft, dict[str, Any], Verifier | None], Exported]


def _portable(draft: ImportedDraft, config: dict[str, Any], _verifier: Verifier | None) -> Exported:
    return _safetensors(config, _tensors(draft))


def _sglang(draft: ImportedDraft, config: dict[str, Any], _verifier: Verifier | None) -> Exported:
    """As SpecForge writes: layer ids, where there are any, only as blocks in ``eagle_config``."""
    config.pop(KEY, None)
    return _safetensors(config, _tensors(draft))


def _vllm(draft: ImportedDraft, config: dict[str, Any], _verifier: Verifier | None) -> Exported:
    """Names as in vLLM: ``layers.0``, layer ids at the top level, the residual's place said."""
    config.pop("eagle_config", None)
    config = _before_own(config, {"norm_before_residual": False})
    return _safetensors(config, _layers_0(_tensors(draft)))


def _speculators(
    draft: ImportedDraft, config: dict[str, Any], verifier: Verifier | None
) -> Exported:
    """The nested config of speculators (RedHatAI), which ``vllm serve FOLDER`` starts by itself."""
    if verifier is None:
        raise OptionError(
            "--to speculators: its config names the target that vLLM starts. Name it with --target."
        )
    config.pop("eagle_config", None)
    layers, own = config.pop(KEY, None), config.pop("vtrim")
    size = config.pop("draft_vocab_size")
    layer = {**config, "architectures": ["LlamaForCausalLM"]}
    proposal = {
        "proposal_type": "greedy",
        "speculative_tokens": SPECULATIVE_TOKENS,
        "verifier_accept_k": 1,
        "accept_tolerance": 0.0,
    }
    nested = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        "draft_vocab_size": size,
        "norm_before_residual": False,
        "norm_before_fc": False,
        "fc_norm": False,
        "norm_output": False,
        "target_hidden_size": draft.shape.target_hidden_size,
        "eagle_aux_hidden_state_layer_ids": layers,
        "embed_requires_grad": False,
        "tie_word_embeddings": False,
        "transformer_layer_config": layer,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {
                "name_or_path": verifier.name,
                "architectures": list(verifier.architectures),
            },
        },
        "vtrim": own,
    }
    return _safetensors(nested, _layers_0(_tensors(draft)))


def _eagle(draft: ImportedDraft, config: dict[str, Any], _verifier: Verifier | None) -> Exported:
    """As the EAGLE repository writes and reads: ``torch.save``, a plain Llama by name."""
    shape = draft.shape
    if shape.num_attention_heads * shape.head_dim != shape.hidden_size:
        raise OptionError(
            f"--to eagle: EAGLE takes hidden_size / heads for the head size, which is "
            f"{shape.head_dim} here, not {shape.hidden_size / shape.num_attention_heads:g}; its "
            "code cannot load this draft."
        )
    if config.get("rope_scaling") or config.get("rope_parameters"):
        raise OptionError(
            "--to eagle: EAGLE cannot read this draft's rope scaling. "
            "`vtrim import --rope-theta BASE` writes the plain base it was trained with."
        )
    if config.pop("eagle_config", None) is not None:
        raise OptionError(
            f"--to eagle: EAGLE always reads the target's states 2, n//2, n-3; this draft reads "
            f"{config[KEY]}, which its config cannot say."
        )
    config["architectures"] = ["LlamaForCausalLM"]
    packed = io.BytesIO()
    torch.save(_tensors(draft), packed)
    return Exported(config=config, weights_name=PICKLE, weights=packed.getvalue())


def _trtllm(draft: ImportedDraft, config: dict[str, Any], _verifier: Verifier | None) -> Exported:
    """As ModelOpt (NVIDIA) writes: ``layers.0``, no t2d, blocks in ``eagle_config``; and the YAML.

    TensorRT-LLM reads layer ids from its YAML only.
    """
    config.pop(KEY, None)
    blocks = config.pop("eagle_config", {}).get(KEY)
    eagle = {"use_aux_hidden_state": True, "next_layer_regular": True}
    config = _before_own(config, {"eagle_config": eagle | ({KEY: blocks} if blocks else {})})
    tensors = _layers_0(_tensors(draft))
    tensors.pop("t2d", None)
    made = _safetensors(config, tensors)
    made.texts[TRT_FILE] = trt_yaml("PATH_TO_THIS_FOLDER", blocks)
    return made


LAYOUTS: dict[str, Export] = {
    "portable": _portable,
    "sglang": _sglang,
    "vllm": _vllm,
    "speculators": _speculators,
    "eagle": _eagle,
    "trtllm": _trtllm,
}


def trt_yaml(folder: str, blocks: list[int] | None, tokens: int = SPECULATIVE_TOKENS) -> str:
    """The ``--config`` of ``trtllm-serve``; blocks: layers whose output is taken, None: default."""
    lines = [
        "speculative_config:",
        "  decoding_type: Eagle3",
        f"  max_draft_len: {tokens}",
        f"  speculative_model: {folder}",
    ]
    if blocks:
        lines.append(f"  eagle3_layers_to_capture: {list(blocks)}")
    return "\n".join(lines) + "\n"


def _tensors(draft: ImportedDraft) -> dict[str, Tensor]:
    return with_mapping(draft.tensors, draft.vocab)


def _layers_0(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.replace("midlayer.", "layers.0."): value for name, value in tensors.items()}


def _safetensors(config: dict[str, Any], tensors: Mapping[str, Tensor]) -> Exported:
    return Exported(config=config, weights_name=WEIGHTS, weights=weights_bytes(tensors))


def _before_own(config: dict[str, Any], entries: dict[str, Any]) -> dict[str, Any]:
    """The config with entries added in front of ``vtrim``, which stays the last."""
    own = config.pop("vtrim")
    return {**config, **entries, "vtrim": own}
