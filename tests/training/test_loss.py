"""Head and loss in chunks against torch's own way through whole matrices, value and gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from vtrim.training import loss as module
from vtrim.training.batch import Features, Rows
from vtrim.training.criteria import CRITERIA, DraftLaw, TargetLaw
from vtrim.training.loss import Judge, head_loss

STATES, K, WIDTH = 9, 11, 8
PAIRS = [2, 0, 3, 1, 4, 0, 2, 1, 3]  # of each state


@dataclass
class Case:
    """Random pairs; the teacher of states 2 and 6 prefers a token outside D."""

    dtype: torch.dtype = torch.float64
    loss: str = "soft-ce"
    oov: str = "drop"
    k: int = K

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        count = sum(PAIRS)
        self.hidden = torch.randn(count, WIDTH, dtype=torch.float64).to(self.dtype)
        self.weight = torch.randn(self.k, WIDTH, dtype=torch.float64).to(self.dtype)
        self.teacher = torch.randn(self.k, WIDTH, dtype=torch.float64).to(self.dtype)
        self.states = torch.randn(STATES, WIDTH, dtype=torch.float64).to(self.dtype)
        self.coefficient = torch.rand(count, dtype=torch.float64) + 0.1
        z = self.z()
        best = z.argmax(-1)
        best[[2, 6]] = -1
        self.log_z = z.logsumexp(-1) + 0.3
        self.best = best
        self.slot = torch.arange(STATES).repeat_interleave(torch.tensor(PAIRS))
        self.calls: list[int] = []

    def z(self) -> Tensor:
        return (self.states @ self.teacher.T).double()

    def judge(self) -> Judge:
        first = np.concatenate([[0], np.cumsum(PAIRS)])
        empty = torch.zeros(0)
        rows = Rows(
            ids=empty, start=empty, position=empty, flat=empty, step=empty,
            slot=self.slot, first_row=first, counts=(), blocks=(),
        )  # fmt: skip
        features = Features(empty, empty, self.states, self.log_z, self.best, self.best)

        def teacher(hidden: Tensor) -> Tensor:
            self.calls.append(hidden.shape[0])
            return hidden @ self.teacher.T

        return Judge(rows, features, teacher, self.loss, self.oov)  # type: ignore[arg-type]

    def run(self, coefficient: Tensor | None = None) -> tuple[Tensor, ...]:
        """total, losses, right, gradient of hidden, gradient of weight (of 3 * total)."""
        judge = self.judge()
        if coefficient is None:
            coefficient = self.coefficient * judge.weight
        hidden = self.hidden.clone().requires_grad_()
        weight = self.weight.clone().requires_grad_()
        total, losses, right = head_loss(hidden, weight, coefficient, judge)
        (3 * total).backward()
        assert hidden.grad is not None
        assert weight.grad is not None
        return total.detach(), losses, right, hidden.grad, weight.grad

    def slow(self) -> tuple[Tensor, ...]:
        """The same on whole matrices; gradients by autograd through the criterion's definition."""
        hidden = self.hidden.double().requires_grad_()
        weight = self.weight.double().requires_grad_()
        logits = hidden @ weight.T
        law, draft = TargetLaw.of(self.z(), self.log_z), DraftLaw.of(logits.detach().clone())
        losses, gradient = CRITERIA[self.loss](law, self.slot, draft)  # type: ignore[index]
        counted = torch.ones(len(self.slot)) if self.oov == "keep" else self.best[self.slot] >= 0
        coefficient = self.coefficient * counted
        logits.backward(3 * gradient * coefficient[:, None])
        right = (logits.argmax(-1) == self.best[self.slot]) & (coefficient != 0)
        assert hidden.grad is not None
        assert weight.grad is not None
        return (losses * coefficient).sum(), losses * counted, right, hidden.grad, weight.grad


@pytest.fixture(params=[1, 3, 100], ids=["one at a time", "three at a time", "at once"])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", {"cpu": request.param * K, "cuda": 1})
    monkeypatch.setattr(module, "MIN_PAIRS", 1)
    return int(request.param)


@pytest.mark.parametrize("oov", ["drop", "keep"])
@pytest.mark.parametrize("loss", sorted(CRITERIA))
def test_chunks_equal_whole_matrices(chunk: int, loss: str, oov: str) -> None:
    case = Case(loss=loss, oov=oov)
    for fast, slow in zip(case.run(), case.slow(), strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)
    assert max(case.calls) <= chunk
    assert len(case.calls) == {1: 7, 3: 3, 100: 1}[chunk]


def test_a_block_without_a_pair_does_not_ask_the_teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", {"cpu": 1, "cuda": 1})
    monkeypatch.setattr(module, "MIN_PAIRS", 1)
    case = Case()
    case.run()
    assert sum(case.calls) == sum(1 for pairs in PAIRS if pairs), "states 1 and 5 judge nothing"


@pytest.mark.parametrize("loss", sorted(CRITERIA))
def test_a_pair_with_coefficient_0_takes_no_part_whatever_it_holds(loss: str) -> None:
    clean, broken = Case(loss=loss), Case(loss=loss)
    dropped = broken.best[broken.slot] < 0
    broken.hidden[dropped] = math.nan
    found = broken.run()
    for name, ours, expected in zip(["total", "losses", "right", "h", "w"], found, clean.run()):  # noqa: B905
        assert torch.equal(ours, expected), name
    assert (found[1][dropped] == 0).all()
    assert (found[3][dropped] == 0).all()
    assert not found[2][dropped].any(), "a teacher outside D is a miss"


@pytest.mark.parametrize("oov", ["drop", "keep"])
@pytest.mark.parametrize("loss", sorted(CRITERIA))
@pytest.mark.parametrize("state", [0, 2])  # of which 2 is outside D
def test_a_pair_whose_target_state_is_not_finite_makes_total_and_gradients_nan(
    loss: str, oov: str, state: int
) -> None:
    case = Case(loss=loss, oov=oov)
    case.log_z[state] = math.nan  # its logits over D may well be finite
    total, losses, _, of_hidden, of_weight = case.run()
    assert total.isnan()
    assert of_hidden[case.slot == state].isnan().all()
    assert of_weight.isnan().any()
    assert losses[case.slot != state].isfinite().all()


def test_keep_counts_every_pair_and_still_calls_them_misses() -> None:
    case = Case(oov="keep")
    _, losses, right, grad, _ = case.run()
    outside = case.best[case.slot] < 0
    assert outside.any()
    assert (losses[outside] > 0).all()
    assert (grad[outside] != 0).any()
    assert not right[outside].any()


def test_no_pair_at_all_costs_nothing() -> None:
    case = Case()
    total, losses, right, of_hidden, of_weight = case.run(torch.zeros(sum(PAIRS)))
    assert float(total) == 0
    assert not losses.any()
    assert not right.any()
    assert not of_hidden.any()
    assert not of_weight.any()


@pytest.mark.parametrize("pool", [1, 1 << 24], ids=["flushed at every chunk", "flushed once"])
def test_bf16_comes_as_close_as_its_inputs_allow(
    pool: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", {"cpu": 5 * K, "cuda": 1})
    monkeypatch.setattr(module, "MIN_PAIRS", 1)
    monkeypatch.setattr(module, "POOL_ELEMENTS", pool)
    case = Case(dtype=torch.bfloat16)
    case.coefficient = case.coefficient.float()
    total, losses, _, of_hidden, of_weight = case.run()
    slow = case.slow()
    assert total.dtype == losses.dtype == torch.float32
    assert of_hidden.dtype == of_weight.dtype == torch.bfloat16
    for ours, exact in ((losses, slow[1]), (of_hidden, slow[3]), (of_weight, slow[4])):
        size = exact.abs().max()
        assert float((ours.double() - exact).abs().max() / size) < 0.02


def test_without_gradients_none_are_formed_and_the_losses_are_the_same() -> None:
    case = Case()
    with torch.no_grad():
        weight = case.weight.requires_grad_()
        judge = case.judge()
        total, losses, right = head_loss(case.hidden, weight, case.coefficient, judge)
    assert not total.requires_grad
    dropped = torch.ones(sum(PAIRS), dtype=torch.double)
    expected = Case(oov="keep").run(dropped * Case().coefficient)
    kept = case.best[case.slot] >= 0
    torch.testing.assert_close(losses[kept], expected[1][kept])
    assert torch.equal(right, expected[2])


def test_a_head_that_is_not_trained_gets_no_gradient_and_passes_one_on() -> None:
    case = Case()
    hidden = case.hidden.clone().requires_grad_()
    judge = case.judge()
    total, _, _ = head_loss(hidden, case.weight, case.coefficient * judge.weight, judge)
    (3 * total).backward()
    torch.testing.assert_close(hidden.grad, case.run()[3])
    assert case.weight.grad is None


def test_a_second_backward_is_refused() -> None:
    case = Case()
    hidden = case.hidden.requires_grad_()
    total, _, _ = head_loss(hidden, case.weight, case.coefficient, case.judge())
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="run forward again"):
        total.backward()
