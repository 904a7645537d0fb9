from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vtrim.errors import InputError
from vtrim.models.new_rows import STRENGTHS, fit_new_rows


def rows(count: int, width: int, seed: int) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def slow_map(trained: Tensor, common: Tensor, strength: float) -> Tensor:
    """The same M by its normal equations, with a solver."""
    x, y = common.double(), trained.double()
    gram = x.T @ x
    scale = (x * y).sum() / (x * x).sum()
    pull = strength * gram.diagonal().mean() * torch.eye(len(gram), dtype=torch.float64)
    return torch.linalg.solve(gram + pull, x.T @ y + scale * pull)


def test_a_scaled_copy_is_found_exactly() -> None:
    common, wanted = rows(40, 8, 0), rows(5, 8, 1)
    made, fit = fit_new_rows(1.5 * common, common, wanted)
    assert fit.scale == pytest.approx(1.5)
    assert (fit.relative_error, fit.cosine) == (pytest.approx(0, abs=1e-6), pytest.approx(1))
    assert torch.allclose(made, 1.5 * wanted, atol=1e-5)


def test_a_head_in_another_basis_is_found_where_a_copy_fails() -> None:
    turn = torch.linalg.qr(rows(8, 8, 2))[0]
    common, wanted = rows(400, 8, 0), rows(5, 8, 1)
    made, fit = fit_new_rows(common @ turn, common, wanted)
    assert fit.strength == STRENGTHS[0]
    assert fit.relative_error < 0.01
    assert (made - wanted @ turn).norm() / wanted.norm() < 0.01


def test_noise_asks_for_a_stronger_pull() -> None:
    common = rows(60, 32, 0)
    _, fit = fit_new_rows(common + 0.3 * rows(60, 32, 1), common, rows(3, 32, 2))
    assert fit.strength >= 1
    assert 0.2 < fit.relative_error < 0.4


def test_the_map_is_the_solution_of_the_normal_equations() -> None:
    common, wanted = rows(50, 6, 0), rows(4, 6, 1)
    trained = common @ rows(6, 6, 3) + 0.1 * rows(50, 6, 2)
    made, fit = fit_new_rows(trained, common, wanted)
    assert fit.common == 50
    expected = wanted.double() @ slow_map(trained, common, fit.strength)
    assert torch.allclose(made.double(), expected, atol=1e-5)


def test_the_error_told_is_that_of_rows_left_out() -> None:
    common = rows(50, 6, 0)
    trained = common @ rows(6, 6, 3) + 0.1 * rows(50, 6, 2)
    _, fit = fit_new_rows(trained, common, common[:1])
    out = torch.arange(50) % 5 == 4
    errors = {}
    for strength in STRENGTHS:
        restored = common[out].double() @ slow_map(trained[~out], common[~out], strength)
        errors[strength] = float((restored - trained[out]).norm() / trained[out].norm())
    assert fit.strength == min(errors, key=lambda s: errors[s])
    assert fit.relative_error == pytest.approx(errors[fit.strength], rel=1e-5)


def test_counts_weigh_the_rows_as_if_each_stood_there_that_often() -> None:
    common, trained, wanted = rows(30, 4, 0), rows(30, 4, 1), rows(2, 4, 2)
    counts = torch.arange(30)
    made, fit = fit_new_rows(trained, common, wanted, counts)
    often = torch.repeat_interleave(torch.arange(30), counts + 1)
    matrix = slow_map(trained[often], common[often], fit.strength)
    assert torch.allclose(made.double(), wanted.double() @ matrix, atol=1e-5)
    assert fit.weighted
    assert not fit_new_rows(trained, common, wanted)[1].weighted


def test_bf16_rows_are_fitted_in_full_precision() -> None:
    common = rows(40, 8, 0).bfloat16()
    made, _ = fit_new_rows(2 * common, common, common[:3])
    assert made.dtype == torch.float32
    assert torch.allclose(made, 2 * common[:3].float(), atol=1e-5)


def test_too_few_or_other_rows_are_refused() -> None:
    with pytest.raises(InputError, match="share 9 tokens with the target; at least 10"):
        fit_new_rows(rows(9, 4, 0), rows(9, 4, 0), rows(1, 4, 0))
    with pytest.raises(InputError, match="head rows have 4 numbers, the target's 8"):
        fit_new_rows(rows(20, 4, 0), rows(20, 8, 0), rows(1, 8, 0))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_rows_that_are_not_finite_spread_to_no_new_one(which: int) -> None:
    trained, common, wanted = parts = rows(40, 4, 0), rows(40, 4, 1), rows(3, 4, 2)
    parts[which][1, 2] = torch.nan
    with pytest.raises(InputError, match="not finite"):
        fit_new_rows(trained, common, wanted)


@pytest.mark.parametrize("which", [0, 1])
def test_rows_of_zeros_give_no_map(which: int) -> None:
    trained, common = parts = rows(40, 4, 0), rows(40, 4, 1)
    parts[which].zero_()
    with pytest.raises(InputError, match="no map from the target's head"):
        fit_new_rows(trained, common, rows(3, 4, 2))
