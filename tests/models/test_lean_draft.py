"""The draft's lean forward gives the training forward's states and logits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vtrim.models.draft import Eagle3Draft
from vtrim.models.lean_draft import LeanDraft, fast_draft
from vtrim.shape import DraftShape

SHAPE = DraftShape(
    hidden_size=32,
    intermediate_size=48,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    target_hidden_size=32,
    target_vocab_size=40,
    num_target_layers=8,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
    max_position_embeddings=64,
)


def random_draft() -> Eagle3Draft:
    """Weights and norms away from their start values."""
    torch.manual_seed(0)
    draft = Eagle3Draft(SHAPE, torch.arange(0, 40, 2)).eval().requires_grad_(False)
    for weight in draft.parameters():
        weight += 0.3 * torch.randn_like(weight)
    return draft


def causal(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention among the rows of one pass."""
    return F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)


@pytest.mark.parametrize("pack", [True, False])
def test_states_and_logits_are_the_training_forwards(pack: bool) -> None:
    draft, lean = random_draft(), LeanDraft(random_draft(), pack=pack)
    aux, embeds = torch.randn(2, 5, 96), torch.randn(2, 5, 32)
    positions = torch.tensor([[0, 1, 2, 3, 4], [40, 41, 42, 43, 44]])
    torch.testing.assert_close(lean.fuse(aux), draft.fuse(aux))
    states = draft.step(embeds, draft.fuse(aux), positions, causal)
    found = lean.step(embeds, lean.fuse(aux), positions, causal)
    torch.testing.assert_close(found, states, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(lean.logits(states), draft.logits(states), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_draft_of_any_dtype_is_made_lean_once(dtype: torch.dtype) -> None:
    lean = fast_draft(random_draft().to(dtype), pytest.fail)
    assert isinstance(lean, LeanDraft)
    assert fast_draft(lean, pytest.fail) is lean


def test_the_lean_draft_saves_the_same_weights() -> None:
    draft = random_draft()
    saved, lean = draft.state_dict(), fast_draft(draft, pytest.fail).state_dict()
    assert saved.keys() == lean.keys()
    assert all(torch.equal(saved[name], lean[name]) for name in saved)


def test_a_draft_that_computes_something_else_keeps_its_forward_and_says_so() -> None:
    class Shifted(nn.Linear):
        """A projection with a product of its own."""

        def forward(self, x: Tensor) -> Tensor:
            return 1 + super().forward(x)

    draft, said = random_draft(), list[str]()
    changed = Shifted(48, 32, bias=False)
    changed.weight = draft.midlayer.mlp.down_proj.weight
    draft.midlayer.mlp.down_proj = changed
    assert fast_draft(draft, said.append) is draft
    assert "training forward" in said[0]
