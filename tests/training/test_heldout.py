"""The joint prefix by hand: right needs the teacher's arg-max, going on needs the data token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vtrim.errors import InputError
from vtrim.models.draft import Head
from vtrim.training.batch import Features, Rows, TrainSample, make_rows
from vtrim.training.heldout import HeldOut
from vtrim.training.heldout import evaluate as evaluate_or_none
from vtrim.training.settings import TrainSettings

IDS = [9, 9, 10, 11, 99, 13]
K = 4  # kept target ids 10 11 12 13 are draft ids 0..3


class FakeDraft(nn.Module):
    """Each hidden value is a one-hot draft id, and the logits name it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Identity()
        self.lm_head = Head(K, K, bias=False)
        self.lm_head.weight.data = 9 * torch.eye(K)


class FakeModel(nn.Module):
    """Proposes what it is told. guesses: [S, R] draft ids of the rows at each step."""

    def __init__(self, guesses: list[list[int]], oov: str = "drop") -> None:
        super().__init__()
        self.draft, self.guesses = FakeDraft(), torch.tensor(guesses)
        self.settings = TrainSettings(ttt_steps=len(guesses), oov=oov)  # type: ignore[arg-type]

    def unroll(self, _rows: Rows, _features: Features) -> Tensor:
        return nn.functional.one_hot(self.guesses, K)[:, None].float()

    def teacher_logits(self, hidden: Tensor) -> Tensor:
        return torch.zeros(hidden.shape[0], K)


def evaluate(model: FakeModel, batches: list[tuple[Rows, Features, bool]], decay: float) -> HeldOut:
    """The measures where there are rows."""
    measured = evaluate_or_none(model, batches, decay)  # type: ignore[arg-type]
    assert measured is not None
    return measured


def _batch(steps: int) -> tuple[Rows, Features]:
    """Six tokens, all of them reply; the state at position p has arg-max best[p]."""
    sample = TrainSample(np.array(IDS), np.ones(6, dtype=bool), 0)
    rows = make_rows([[sample]], steps, "exact")
    best = torch.tensor([50, 10, 11, 12, 77, 13])  # at positions 0 and 4 outside D
    inside = torch.where((best >= 10) & (best < 14), best - 10, -1)
    empty: Any = torch.zeros(1, 6, 1)
    return rows, Features(empty, empty, torch.zeros(6, 1), torch.full((6,), 2.0), best, inside)


def test_the_prefix_breaks_at_a_wrong_token_an_oov_teacher_and_another_data_token() -> None:
    # rows t = 0..3 at step 0, judged by positions 1..4; rows 0..2 at step 1, by positions 2..4
    rows, features = _batch(2)
    assert rows.counts == (4, 3)
    # step 0: 10 11 12 are right, 13 cannot be (teacher outside D); the data tokens are 10 11 99 13,
    #         so rows 0 and 1 go on. step 1: row 0 right (11), row 1 wrong (13, teacher 12).
    guesses = [[0, 1, 2, 3], [1, 3, 0, 0]]
    measured = evaluate(FakeModel(guesses), [(rows, features, True)], 0.8)
    assert measured.accuracy == pytest.approx([3 / 4, 1 / 3])
    assert measured.prefix == pytest.approx([3 / 4, 1 / 3])
    assert measured.joint_prefix == pytest.approx(1 + 3 / 4 + 1 / 3)
    assert measured.oov_share == pytest.approx(1 / 4)


def test_a_right_token_where_the_data_went_another_way_ends_the_prefix() -> None:
    rows, features = _batch(2)
    # row 2 is right at step 0 (12) but the data says 99: right at step 1 would not count either
    features.best_draft[4] = 0  # type: ignore[index]
    guesses = [[3, 3, 2, 3], [3, 3, 0, 3]]
    measured = evaluate(FakeModel(guesses), [(rows, features, True)], 0.8)
    assert measured.accuracy == pytest.approx([1 / 4, 1 / 3])
    assert measured.prefix == pytest.approx([1 / 4, 0.0])


@pytest.mark.parametrize(("oov", "counted"), [("drop", [3, 2]), ("keep", [4, 3])])
def test_the_loss_counts_what_training_counts_and_divides_by_all_rows(
    oov: str, counted: list[int]
) -> None:
    rows, features = _batch(2)
    guesses = [[0, 0, 0, 0], [0, 0, 0, 0]]
    model: Any = FakeModel(guesses, oov)
    measured = evaluate(model, [(rows, features, True)], 0.5)
    # teacher uniform over D, logits (9, 0, 0, 0): -sum p log q of one row
    row = float(torch.tensor([9.0, 0, 0, 0]).logsumexp(0)) - 9 / 4
    expected = row * (counted[0] / 4 + 0.5 * counted[1] / 3)
    assert measured.loss == pytest.approx(expected, rel=1e-6)


def test_a_batch_that_only_keeps_step_is_not_counted() -> None:
    one = (*_batch(1), True)
    idle = (*_batch(1), False)
    guesses = [[0, 1, 0, 0]]
    model: Any = FakeModel(guesses)
    assert evaluate(model, [one, idle], 0.8) == evaluate(model, [one], 0.8)


@pytest.mark.parametrize("oov", ["drop", "keep"])
@pytest.mark.parametrize("state", [1, 4])  # of which 4 is outside D
def test_a_target_state_that_is_not_finite_is_refused(oov: str, state: int) -> None:
    rows, features = _batch(1)
    features.log_z[state] = torch.nan
    model: Any = FakeModel([[0, 1, 2, 3]], oov)
    with pytest.raises(InputError, match="held-out loss is not finite"):
        evaluate(model, [(rows, features, True)], 0.8)


def test_no_row_at_all_measures_nothing() -> None:
    assert evaluate_or_none(FakeModel([[0]]), [], 0.8) is None  # type: ignore[arg-type]
