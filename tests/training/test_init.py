"""How a new draft starts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from vtrim.models.draft import Eagle3Draft
from vtrim.models.target import Target
from vtrim.shape import DraftShape
from vtrim.training.init import NORM_SCALE, new_draft
from vtrim.training.settings import HeadInit
from vtrim.vocab import DraftVocab

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
}
KEPT = [0, 3, 5, 8, 21, 39]
HEADS: tuple[HeadInit, ...] = ("target", "random", "frozen")


@pytest.fixture(scope="module")
def target() -> Target:
    torch.manual_seed(3)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=False))
    with torch.no_grad():
        model.model.norm.weight.uniform_(0.5, 3)
    return Target(model, "llama")


def _draft(target: Target, head: HeadInit, seed: int = 0, **changes: int) -> Eagle3Draft:
    shape = DraftShape.from_target_config(target.model.config.to_dict())
    vocab = DraftVocab.of(KEPT, 40)
    return new_draft(target, replace(shape, **changes), vocab, head, seed)


@pytest.mark.parametrize("head", ["target", "frozen"])
def test_the_head_starts_as_the_targets_rows_under_a_quarter_of_its_norm(
    target: Target, head: HeadInit
) -> None:
    draft = _draft(target, head)
    assert torch.equal(draft.lm_head.weight, target.head_weight[KEPT])
    expected = target.model.model.norm.weight * NORM_SCALE
    torch.testing.assert_close(draft.norm.weight.detach(), expected.detach())


def test_only_a_frozen_head_is_not_trained_and_everything_else_is(target: Target) -> None:
    for head in HEADS:
        still = {n for n, p in _draft(target, head).named_parameters() if not p.requires_grad}
        assert still == ({"lm_head.weight"} if head == "frozen" else set())


def test_a_random_head_holds_nothing_of_the_target(target: Target) -> None:
    draft = _draft(target, "random")
    assert not torch.isclose(draft.lm_head.weight, target.head_weight[KEPT]).all(1).any()
    assert torch.equal(draft.norm.weight, torch.ones(16))
    assert 0.01 < float(draft.lm_head.weight.detach().std()) < 0.03


def test_the_first_pass_is_the_highest_auxiliary_state(target: Target) -> None:
    draft = _draft(target, "target")
    aux = torch.randn(1, 5, 48)
    fused = draft.fuse(aux)
    torch.testing.assert_close(fused, aux[..., 32:])

    def attend(query: Tensor, _keys: Tensor, _values: Tensor) -> Tensor:
        return torch.randn_like(query)

    out = draft.step(torch.randn(1, 5, 16), fused, torch.arange(5)[None], attend)
    torch.testing.assert_close(out, fused)  # attention and MLP add nothing yet


def test_the_seed_alone_decides_the_weights(target: Target) -> None:
    one, again, other = (_draft(target, "random", seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["lm_head.weight"], other["lm_head.weight"])
