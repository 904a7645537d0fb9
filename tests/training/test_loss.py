"""The chunked loss against torch's own, value and gradients."""

from __future__ import annotations

import pytest
import torch

from vtrim.training.loss import CHUNK_ROWS, soft_cross_entropy


@pytest.mark.parametrize("rows", [0, 1, CHUNK_ROWS, 2 * CHUNK_ROWS + 3])
def test_value_and_gradients_equal_autograd_through_the_whole_matrix(rows: int) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(rows, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 8, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(5, 11, dtype=torch.float64).softmax(-1)
    index = torch.randint(0, 5, (rows,))
    best = teacher.argmax(-1)[index]
    logits = hidden @ weight.T
    slow = -(teacher[index] * logits.log_softmax(-1)).sum()
    (3 * slow).backward()
    wanted = [hidden.grad.clone(), weight.grad.clone()]
    hidden.grad = weight.grad = None

    fast, correct = soft_cross_entropy(hidden, weight, teacher, index, best)
    (3 * fast).backward()
    torch.testing.assert_close(fast.double(), slow, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(hidden.grad, wanted[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(weight.grad, wanted[1], rtol=1e-5, atol=1e-4)
    assert int(correct) == int((logits.argmax(-1) == best).sum())


def test_a_draft_equal_to_the_teacher_costs_the_teachers_entropy() -> None:
    teacher = torch.tensor([[0.5, 0.25, 0.25]])
    hidden, weight = torch.eye(3)[:1] * 0 + 1, teacher.log().T.repeat(1, 3) / 3
    loss, correct = soft_cross_entropy(
        hidden, weight, teacher, torch.tensor([0]), torch.tensor([0])
    )
    assert float(loss) == pytest.approx(1.5 * 0.6931472, rel=1e-5)  # nats
    assert int(correct) == 1
