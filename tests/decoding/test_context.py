"""How long a sequence may get, and whose limit a refusal names."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen3NextConfig

from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.cache import TargetCache
from vtrim.decoding.context import context_of
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import GenerationSettings
from vtrim.decoding.second_model import ModelDrafter
from vtrim.errors import InputError
from vtrim.models.skipping import without_layers
from vtrim.models.target import Target

SIZES: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "eos_token_id": 1,
}


@pytest.fixture(scope="module")
def longrope() -> Target:
    """A toy whose angles change for all rows of a forward that crosses 16 positions."""
    torch.manual_seed(0)
    scaling = {
        "rope_type": "longrope",
        "short_factor": [1.0] * 4,
        "long_factor": [3.0] * 4,
        "rope_theta": 10000.0,
    }
    config = Phi3Config(
        **SIZES,
        max_position_embeddings=128,
        original_max_position_embeddings=16,
        rope_scaling=scaling,
    )
    return Target(Phi3ForCausalLM(config).float(), "long", ())


def llama(positions: int) -> Target:
    config = LlamaConfig(**SIZES, max_position_embeddings=positions)
    return Target(LlamaForCausalLM(config), "llama", ())


def settings(**changes: Any) -> GenerationSettings:
    values: dict[str, Any] = {
        "max_new_tokens": 20,
        "stop_ids": frozenset(),
        "temperature": 0.0,
        "num_draft_tokens": 4,
        "seed": 0,
    }
    return GenerationSettings(**(values | changes))


def test_longrope_replies_depend_neither_on_drafts_nor_on_neighbours(longrope: Target) -> None:
    dice = random.Random(2)
    prompts = [[dice.randrange(32) for _ in range(dice.choice([5, 8, 11]))] for _ in range(12)]
    plain = [Engine(longrope).decode_plain(ids, settings()).tokens for ids in prompts]
    drafter = ModelDrafter(without_layers(longrope, []), longrope)
    exact = make_acceptor("greedy")
    for engine, acceptor in ((Engine(longrope, drafter), exact), (Engine(longrope), None)):
        for batch_size in (1, 4):
            replies = engine.decode_many(prompts, settings(), acceptor, batch_size=batch_size)
            assert [reply.tokens for reply in replies] == plain
    for ids, reply in zip(prompts, plain, strict=True):
        assert len(ids) + len(reply) == 16


def test_a_prompt_beyond_the_switch_of_longrope_is_refused_by_that_name(longrope: Target) -> None:
    engine = Engine(longrope)
    assert engine.context.note is not None
    assert "replies end at 16 tokens" in engine.context.note
    with pytest.raises(
        InputError, match=r"16 positions only \(rope_type longrope.*Shorten"
    ) as told:
        engine.decode_plain([3] * 16, settings())
    assert "\n" not in str(told.value)


def test_a_refusal_names_the_model_whose_positions_end() -> None:
    target, small = llama(64), llama(24)
    drafter = ModelDrafter(small, target)
    for engine, length, whose in (
        (Engine(target), 64, "the target has 64 positions"),
        (Engine(target, drafter), 24, "the draft has 24 positions, fewer than the target"),
        (Engine(small, drafter), 24, "the target has 24 positions"),
    ):
        assert engine.context_length == length
        assert engine.context.note is None
        with pytest.raises(InputError, match=f"has {length} tokens; {whose}"):
            engine.check_prompt([3] * length)


def test_a_model_without_a_limit_has_none() -> None:
    target = llama(64)
    target.config = SimpleNamespace()
    assert context_of(target, None).length > 1 << 40


def test_a_draft_model_whose_state_cannot_roll_back_is_named() -> None:
    with pytest.raises(InputError, match="the draft model small has a layer"):
        TargetCache(Qwen3NextConfig(num_hidden_layers=4), 1, 8, whose="the draft model small")
