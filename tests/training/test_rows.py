"""Which rows are trained: the worked example of MATH.md and its properties."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrim.training.rows import row_mask, teacher_positions
from vtrim.training.settings import MaskAlignment

REPLY_MASK = np.array([0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1], dtype=bool)


def _rows(mask: np.ndarray, step: int) -> list[int]:
    return np.flatnonzero(row_mask(mask, step + 1)[step]).tolist()


def test_the_worked_example_trains_rows_2_3_4_9_then_2_3_then_2() -> None:
    assert [_rows(REPLY_MASK, step) for step in range(4)] == [[2, 3, 4, 9], [2, 3], [2], []]


def test_the_shared_shift_case_holds_for_every_row(inputs: Path) -> None:
    case = json.loads((inputs / "g16_shift.json").read_text())
    mask = np.array(case["reply_mask"], dtype=bool)
    for step in case["steps"]:
        wanted = [r["position"] for r in step["positions"] if r["must_be_supervised"]]
        forbidden = {r["position"] for r in step["positions"] if r["must_not_be_supervised"]}
        got = _rows(mask, step["unroll_step"])
        assert got == wanted
        assert not forbidden & set(got)


def test_the_eagle_alignment_starts_one_row_late_and_ends_at_the_last_teacher() -> None:
    rows = row_mask(REPLY_MASK, 2, "eagle")
    assert np.flatnonzero(rows[0]).tolist() == [3, 4, 5, 6, 10]
    assert np.flatnonzero(rows[1]).tolist() == [2, 3, 4, 5, 9]


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 9))
def test_a_trained_row_means_every_token_of_its_chain_is_a_reply_token(
    mask: list[bool], steps: int
) -> None:
    rows = row_mask(np.array(mask, dtype=bool), steps)
    for i in range(steps):
        for t in range(len(mask)):
            chain = mask[t + 1 : t + 3 + i]
            assert rows[i, t] == (len(chain) == i + 2 and all(chain))


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_the_first_draft_token_of_every_reply_is_trained(mask: list[bool]) -> None:
    """The token after the first of a reply is drafted from the row before the reply begins."""
    trained = row_mask(np.array(mask, dtype=bool), 1)[0]
    for start in range(1, len(mask) - 1):
        if mask[start] and mask[start + 1] and not mask[start - 1]:
            assert trained[start - 1]


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.sampled_from(["exact", "eagle"]))
def test_the_states_that_judge_are_known_before_steps_and_alignment(
    mask: list[bool], alignment: MaskAlignment
) -> None:
    loss_mask = np.array(mask, dtype=bool)
    judging = set(teacher_positions(loss_mask).tolist())
    step, t = np.nonzero(row_mask(loss_mask, 9, alignment))
    assert set((t + 1 + step).tolist()) <= judging <= set(range(len(mask)))


@pytest.mark.parametrize("length", [1, 2])
def test_a_sample_too_short_for_a_label_trains_nothing(length: int) -> None:
    assert not row_mask(np.ones(length, dtype=bool), 3).any()
