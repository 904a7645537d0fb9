"""The draft's RoPE base: read from any target's config, written so that no engine scales it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, LlamaConfig

from vtrim.errors import InputError
from vtrim.models.draft import rotate
from vtrim.models.importing import import_draft
from vtrim.models.layout import draft_config, load_draft
from vtrim.shape import DraftShape
from vtrim.vocab import DraftVocab

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "num_hidden_layers": 8,
    "max_position_embeddings": 131072,
    "pad_token_id": 0,
}
# model_type, what its makers' config.json says of RoPE, the base
CONFIGS: dict[str, tuple[str, dict[str, Any], float]] = {
    "Llama-2": ("llama", {}, 10000.0),
    "Llama-3.1": (
        "llama",
        {
            "rope_theta": 500000.0,
            "rope_scaling": {
                "factor": 8.0,
                "high_freq_factor": 4.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": 8192,
                "rope_type": "llama3",
            },
        },
        500000.0,
    ),
    "linear, the type under its old name": (
        "llama",
        {"rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
        10000.0,
    ),
    "Qwen3, yarn as its card advises": (
        "qwen3",
        {
            "rope_theta": 1000000,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32768,
            },
        },
        1000000.0,
    ),
    "Gemma 3, one base for each kind of layer": (
        "gemma3_text",
        {
            "rope_theta": 1000000.0,
            "rope_local_base_freq": 10000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
        1000000.0,
    ),
    "Phi-2, a part of each head": (
        "phi",
        {"rope_theta": 10000.0, "partial_rotary_factor": 0.4},
        10000.0,
    ),
    "Phi-3, longrope": (
        "phi3",
        {
            "rope_theta": 10000.0,
            "original_max_position_embeddings": 4096,
            "rope_scaling": {
                "type": "longrope",
                "short_factor": [1.0] * 8,
                "long_factor": [1.5] * 8,
            },
        },
        10000.0,
    ),
    "GLM-4, a part of each head": (
        "glm4",
        {"rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        10000.0,
    ),
    "gpt-oss": (
        "gpt_oss",
        {
            "rope_theta": 150000,
            "rope_scaling": {
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "factor": 32.0,
                "original_max_position_embeddings": 4096,
                "rope_type": "yarn",
                "truncate": False,
            },
        },
        150000.0,
    ),
    "a nested base beside an older one": (
        "llama",
        {"rope_theta": 10000.0, "rope_parameters": {"rope_type": "default", "rope_theta": 7e5}},
        700000.0,
    ),
    "a base inside rope_scaling": (
        "llama",
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "rope_theta": 3e5}},
        300000.0,
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_base_is_the_same_as_written_and_as_transformers_reads_it(name: str) -> None:
    kind, rope, base = CONFIGS[name]
    written = {"model_type": kind, **SIZES, **rope}
    assert DraftShape.from_target_config(written).rope_theta == base
    read = AutoConfig.for_model(**json.loads(json.dumps(written)))
    filled = json.loads(read.to_json_string(use_diff=False))
    assert "rope_theta" not in filled, "transformers 5 nests it"
    assert DraftShape.from_target_config(filled).rope_theta == base


@pytest.mark.parametrize("name", CONFIGS)
def test_no_scaling_and_no_part_of_a_head_gets_into_the_drafts_config(name: str) -> None:
    kind, rope, base = CONFIGS[name]
    target = {"model_type": kind, **SIZES, **rope}
    shape = DraftShape.from_target_config(target)
    config = draft_config(shape, DraftVocab.full(100), None, target, {})
    assert (config["rope_theta"], config["rope_scaling"]) == (base, None)
    assert {"rope_parameters", "partial_rotary_factor"}.isdisjoint(config)
    # what vLLM and SGLang make of it: the config class of transformers
    read = LlamaConfig(**config)
    assert read.rope_parameters == {"rope_theta": base, "rope_type": "default"}


def test_every_pair_of_a_head_turns_by_the_base_alone() -> None:
    """Literal: base 500000, head size 4, position 3: angles 3 and 3 / sqrt(500000)."""
    turned = rotate(torch.tensor([[[[1.0, 1.0, 0.0, 0.0]]]]), torch.tensor([[3]]), 500000.0)
    expected = torch.tensor([-0.9899925, 0.9999910, 0.1411200, 0.0042426])
    torch.testing.assert_close(turned.flatten(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "config",
    [
        {"partial_rotary_factor": 0.5},
        {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    ],
)
def test_a_draft_that_turns_a_part_of_each_head_is_refused(
    foreign: Callable[..., Path], config: dict[str, Any]
) -> None:
    folder = foreign("SpecForge", config=config)
    with pytest.raises(InputError, match="partial_rotary_factor"):
        import_draft(folder)
    with pytest.raises(InputError, match="partial_rotary_factor"):
        load_draft(folder, num_target_layers=lambda: 8)


def test_a_base_that_was_typed_goes_before_a_nested_one(foreign: Callable[..., Path]) -> None:
    scaled = {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 5e5}}
    folder = foreign("SpecForge", config=scaled)
    assert import_draft(folder).shape.rope_theta == 500000.0
    typed = import_draft(folder, rope_theta=20000.0)
    assert typed.shape.rope_theta == 20000.0
    assert typed.config["rope_parameters"] is None
