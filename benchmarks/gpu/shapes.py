"""Targets of known shapes with random weights, made where they stay: nothing is downloaded."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from vtrim.models.target import Target

LLAMA31_8B = {
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
}
SMOLLM2_135M = {
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
TINY = {
    **LLAMA31_8B,
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
_DRIVER = Path("/proc/driver/nvidia/version")


def random_target(shape: dict[str, Any], device: str) -> Target:
    """A Llama of that shape with random bf16 weights, made where it stays."""
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model = LlamaForCausalLM(LlamaConfig(**shape))
    finally:
        torch.set_default_dtype(before)
    return Target(model, "random weights")


def card(device: str) -> str:
    """Name of the device that was measured."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    return f"CPU ({platform.processor() or platform.machine()})"


def driver() -> str | None:
    """The graphics driver's own line about its version (torch does not tell it); None without."""
    return _DRIVER.read_text().splitlines()[0] if _DRIVER.is_file() else None
