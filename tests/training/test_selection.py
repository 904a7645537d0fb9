"""Which weights are kept: by decoded length, then by joint prefix; of equal ones the later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import vtrim.training.selection
from vtrim.training.data import split_samples
from vtrim.training.heldout import HeldOut
from vtrim.training.selection import Selection
from vtrim.training.settings import TrainSettings
from vtrim.training.state import TrainState

Measured = tuple[float | None, float | None]
"""Decoded length and joint prefix; None where it is not measured."""
NO_ROW = -1.0
"""A joint prefix over no row."""


def judged(
    monkeypatch: pytest.MonkeyPatch, *checks: Measured, early_stop: int | None = None
) -> tuple[TrainState, list[int]]:
    """The state after these checks at steps 1, 2, ...; the steps whose weights were written."""
    written: list[int] = []
    best: Any = SimpleNamespace(save=lambda _draft, step, _stage: written.append(step))
    feeder: Any = SimpleNamespace(
        split=SimpleNamespace(heldout=[1] if checks[0][1] else []), heldout=list
    )
    decode: Any = SimpleNamespace(measure=None) if checks[0][0] else None
    model: Any = SimpleNamespace(draft=None)
    settings = TrainSettings(early_stop=early_stop)
    selection = Selection(model, feeder, settings, best, decode)
    monkeypatch.setattr(vtrim.training.selection, "plain_copy", lambda *_: None)
    state = TrainState()
    for length, prefix in checks:
        state.step += 1
        held = None if prefix in (None, NO_ROW) else HeldOut(1.0, prefix, [], [], 0.0)
        monkeypatch.setattr(vtrim.training.selection, "evaluate", lambda *_, held=held: held)
        if decode is not None:
            decode.measure = lambda _draft, length=length: {"acceptance_length": length}
        selection.check(state)
    return state, written


@pytest.mark.parametrize(
    ("checks", "best"),
    [
        ([(2.0, 3.0), (2.1, 2.0)], 2),  # the decoded length decides
        ([(2.0, 2.0), (2.0, 2.5)], 2),  # the prefix, where lengths are equal
        ([(2.0, 2.5), (2.0, 2.0)], 1),
        ([(2.0, 2.5), (2.0, 2.5)], 2),  # of equal drafts the later
        ([(None, 2.5), (None, 2.5), (None, 2.4)], 2),
        ([(2.5, None), (2.4, None), (2.5, None)], 3),
        ([(None, None), (None, None)], 2),  # nothing to judge by: the last
    ],
)
def test_the_draft_that_is_kept(
    monkeypatch: pytest.MonkeyPatch, checks: list[Measured], best: int
) -> None:
    state, written = judged(monkeypatch, *checks)
    assert state.best["step"] == best
    assert written[-1] == best


def test_an_equal_draft_is_kept_but_is_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    state, written = judged(monkeypatch, *[(2.0, 2.5)] * 3, early_stop=2)
    assert written == [1, 2, 3]
    assert state.stopped_early


def test_a_check_that_counted_no_row_is_no_score_and_no_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, written = judged(monkeypatch, (None, NO_ROW), (None, NO_ROW))
    assert written == [1, 2]  # nothing to choose by: the last
    assert state.best["score"] is None
    assert state.heldout == {}


def test_heldout_samples_without_an_exact_row_are_left_out_whatever_is_trained() -> None:
    one_reply_token, two = [False, True, False, False], [False, True, True, False]
    samples = [
        SimpleNamespace(ids=np.arange(4), mask=np.array(mask), heldout=heldout, source=None)
        for heldout in (True, False)
        for mask in (one_reply_token, two)
    ]
    split = split_samples(samples, "eagle")
    assert len(split.train) == 2
    assert [s.loss_mask.tolist() for s in split.heldout] == [two]
    assert split.untrained == 1
