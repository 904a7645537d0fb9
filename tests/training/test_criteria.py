"""The losses on whole matrices: against autograd, against numbers by hand, at their edges."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from vtrim.training.criteria import CRITERIA, ETA, DraftLaw, TargetLaw, log_sum_exp


def _slow(kind: str, z: Tensor, log_z: Tensor, logits: Tensor) -> Tensor:
    """Loss of each row, from the definitions. z, logits: [c, k]; log_z: [c]."""
    p, q = z.softmax(-1), logits.softmax(-1)
    acceptance = torch.minimum((z - log_z[:, None]).exp(), q).sum(-1)
    divergence = (p * (p / q).log()).sum(-1)
    share = (-ETA * acceptance.detach()).exp()
    return {
        "soft-ce": -(p * q.log()).sum(-1),
        "kl": divergence,
        "lk-alpha": -acceptance.log(),
        "lk-lambda": share * divergence + (1 - share) * (1 - acceptance),
    }[kind]


def _fast(kind: str, z: Tensor, log_z: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    state, draft = torch.arange(z.shape[0]), DraftLaw.of(logits.clone())
    loss, gradient = CRITERIA[kind](TargetLaw.of(z, log_z), state, draft)  # type: ignore[index]
    return loss, gradient


def _case(rows: int = 6, k: int = 11) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    z = torch.randn(rows, k, dtype=torch.float64) * 2
    outside = torch.rand(rows, dtype=torch.float64) * 2  # what the vocabulary outside D adds
    return z, torch.logaddexp(z.logsumexp(-1), outside), torch.randn(rows, k, dtype=torch.float64)


@pytest.mark.parametrize("kind", sorted(CRITERIA))
def test_loss_and_gradient_equal_autograd_through_the_definition(kind: str) -> None:
    z, log_z, logits = _case()
    logits.requires_grad_()
    slow = _slow(kind, z, log_z, logits)
    slow.sum().backward()
    loss, gradient = _fast(kind, z, log_z, logits.detach())
    torch.testing.assert_close(loss, slow, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, logits.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["soft-ce", "kl", "lk-alpha"])
def test_the_gradient_passes_gradcheck(kind: str) -> None:
    """lk-lambda holds its share constant, so finite differences do not give its gradient."""
    z, log_z, logits = _case(rows=3, k=5)

    class Criterion(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            loss, gradient = _fast(kind, z, log_z, x)
            ctx.save_for_backward(gradient)
            return loss

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            return ctx.saved_tensors[0] * grads[0][:, None]

    assert torch.autograd.gradcheck(Criterion.apply, logits.requires_grad_())


def test_the_numbers_of_a_row_by_hand() -> None:
    """p~ = (0.4, 0.2), 0.4 of the law outside D; q = (0.5, 0.5)."""
    z, log_z = torch.tensor([[0.4, 0.2]]).log(), torch.zeros(1)
    logits = torch.zeros(1, 2)
    divergence = 2 / 3 * math.log(4 / 3) + 1 / 3 * math.log(2 / 3)
    acceptance = 0.4 + 0.2
    share = math.exp(-3 * acceptance)
    expected = {
        "soft-ce": math.log(2),
        "kl": divergence,
        "lk-alpha": -math.log(acceptance),
        "lk-lambda": share * divergence + (1 - share) * (1 - acceptance),
    }
    for kind, value in expected.items():
        assert float(_fast(kind, z, log_z, logits)[0]) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("kind", sorted(CRITERIA))
def test_a_draft_equal_to_the_target_has_no_gradient_and_the_least_loss(kind: str) -> None:
    """Exact binary fractions: the LK losses have a kink here, where q = p~ counts as above."""
    z = torch.zeros(2, 4)
    loss, gradient = _fast(kind, z, torch.full((2,), math.log(4)), z + 3.0)
    least = math.log(4) if kind == "soft-ce" else 0.0
    torch.testing.assert_close(loss, torch.full((2,), least))
    assert torch.equal(gradient, torch.zeros(2, 4))


@pytest.mark.parametrize("kind", sorted(CRITERIA))
def test_tokens_that_the_target_rules_out_and_a_hopeless_draft_stay_finite(kind: str) -> None:
    z = torch.tensor([[0.0, float("-inf"), -200.0], [float("-inf"), 0.0, -1.0]])
    logits = torch.tensor([[-300.0, 300.0, 0.0], [90.0, -90.0, -90.0]])
    loss, gradient = _fast(kind, z, z.logsumexp(-1) + 100.0, logits)
    assert loss.isfinite().all()
    assert gradient.isfinite().all()


def test_log_sum_exp_equals_torchs() -> None:
    x = torch.tensor([[1000.0, 1000.0], [-1000.0, float("-inf")], [0.0, 1.0]])
    torch.testing.assert_close(log_sum_exp(x), x.logsumexp(-1))
