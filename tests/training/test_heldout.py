"""The joint prefix by hand: right needs the teacher's arg-max, going on needs the data token."""

from __future__ import annotations

import pytest
import torch

from vtrim.training.batch import Features, Rows
from vtrim.training.heldout import evaluate


class FakeDraft:
    """Logits that name one draft id for each hidden value."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(hidden.long().squeeze(-1), 4).float() * 9


class FakeModel:
    """Two TTT steps over three rows; each hidden value is the draft id that is proposed."""

    ttt_steps = 2
    draft = FakeDraft()

    def unroll(self, _rows: Rows, _features: Features) -> list[torch.Tensor]:
        return [torch.tensor([[[0.0], [1.0], [2.0]]]), torch.tensor([[[1.0], [2.0], [3.0]]])]


def test_the_prefix_breaks_at_a_wrong_token_an_oov_teacher_and_another_data_token() -> None:
    # kept target ids 10 11 12 13 are draft ids 0..3; tokens 0..5, rows t = 0, 1, 2
    ids = torch.tensor([[9, 9, 10, 11, 99, 13]])
    best = torch.tensor([[-1, 10, 11, 12, 77, -1]])  # teacher at position 4 lies outside D
    best_draft = torch.tensor([[-1, 0, 1, 2, -1, -1]])
    rows = Rows(
        ids=ids,
        position=torch.tensor([[0, 1, 2]]),
        valid=torch.ones(1, 3, dtype=torch.bool),
        trained=torch.ones(2, 1, 3, dtype=torch.bool),
    )
    uniform = torch.full((1, 4), 0.25)
    slot = torch.zeros(1, 6, dtype=torch.int64)
    empty = torch.zeros(1, 6, 1)
    features = Features(empty, empty, uniform, slot, best, best_draft)
    # step 0: rows guess 10 11 12, teachers 10 11 12: all right; data tokens 10, 11, 99:
    #         row 2 does not go on. step 1: guesses 11 12 13, teachers 11 12 outside-D.
    measured = evaluate(FakeModel(), [(rows, features, True)], 0.8)  # type: ignore[arg-type]
    assert measured.accuracy == pytest.approx([1.0, 2 / 3])
    assert measured.prefix == pytest.approx([1.0, 2 / 3])
    assert measured.joint_prefix == pytest.approx(1 + 1 + 2 / 3)
    assert measured.oov_share == 0.0
