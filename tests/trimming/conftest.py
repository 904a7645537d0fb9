"""Counts made without any tokenizer library, and shapes to search with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from vtrim.shape import DraftShape
from vtrim.trimming.coverage import Coverage

ROWS, TOKENS, STOP = 64, 54, 51


@pytest.fixture(scope="session")
def word_coverage(inputs: Path) -> Callable[..., Coverage]:
    """Coverage of a toy chat file: reply words and one stop token a reply, counted by hand."""
    tokenizer = json.loads((inputs / "tok_words" / "tokenizer.json").read_text(encoding="utf-8"))
    words: dict[str, int] = tokenizer["model"]["vocab"]

    def count(name: str, stop_ids: tuple[int, ...] = ()) -> Coverage:
        counts = np.zeros(ROWS, dtype=np.int64)
        for line in (inputs / name).read_text(encoding="utf-8").splitlines():
            for message in json.loads(line)["messages"]:
                if message["role"] == "assistant":
                    for word in message["content"].split():
                        counts[words[word]] += 1
                    counts[STOP] += 1
        return Coverage(
            counts=counts,
            heldout_counts=np.zeros(ROWS, dtype=np.int64),
            target_vocab_size=ROWS,
            tokenizer_length=TOKENS,
            tokenizer_fingerprint="sha256:words",
            data_fingerprint="sha256:data",
            stop_ids=stop_ids,
        )

    return count


@pytest.fixture(scope="session")
def toy_shape(inputs: Path) -> DraftShape:
    """The draft of the toy target: 79,872 FLOPs, 128 of them for each row of the head."""
    config = json.loads((inputs / "target_chain" / "config.json").read_text(encoding="utf-8"))
    return DraftShape.from_target_config(config)


@pytest.fixture(scope="session")
def llama_shape() -> DraftShape:
    """The draft of Llama-3.1-8B."""
    return DraftShape(
        hidden_size=4096,
        target_hidden_size=4096,
        intermediate_size=14336,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        target_vocab_size=128256,
        num_target_layers=32,
        rms_norm_eps=1e-5,
        rope_theta=500000.0,
        max_position_embeddings=131072,
    )


@pytest.fixture(scope="session")
def zipf_coverage() -> Callable[..., Coverage]:
    """Coverage drawn from a Zipf-Mandelbrot law over a 128K vocabulary, 256 rows of it padding."""

    def draw(exponent: float, num_tokens: int, seed: int = 0) -> Coverage:
        rng = np.random.default_rng(seed)
        size, usable = 128256, 128000
        weights = (np.arange(1, usable + 1) + 2.7) ** -exponent
        drawn = rng.multinomial(num_tokens, weights / weights.sum())
        counts = np.zeros(size, dtype=np.int64)
        counts[:usable] = drawn[rng.permutation(usable)]
        return Coverage(
            counts=counts,
            heldout_counts=rng.binomial(counts, 0.05).astype(np.int64),
            target_vocab_size=size,
            tokenizer_length=usable,
            tokenizer_fingerprint="sha256:zipf",
            data_fingerprint="sha256:data",
            stop_ids=(127999,),
        )

    return draw
