"""Every loss, mask, divisor and OOV policy against the plain loops, on two architectures."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import pytest
import torch

from vtrim.training import loss as module
from vtrim.training.batch import TrainSample
from vtrim.training.criteria import CRITERIA
from vtrim.training.data import Split
from vtrim.training.feeder import Feeder
from vtrim.training.settings import TrainSettings
from vtrim.training.states import MemoryStates, OnlineStates
from vtrim.training.teacher import Teacher
from vtrim.training.ttt import StepSums, TTTModel, step_coefficients

sys.path.insert(0, str(Path(__file__).parent))
from reference import reference_loss
from test_step import (
    CLOSE,
    FAMILIES,
    KEPT,
    SAMPLES,
    STEPS,
    _equal,
    _gradients,
    _samples,
    _settings,
    _slow,
    _target,
)

EVERY = list(product(["exact", "eagle"], sorted(CRITERIA), ["rows", "bt"], ["drop", "keep"]))


def _step(family: str, settings: TrainSettings, memory: bool = False) -> tuple[StepSums, TTTModel]:
    """One optimiser step's micro-batch as the trainer runs it: divisors from the feeder."""
    target, draft = _target(family), _slow(family)[0]
    online = OnlineStates(target)
    source = MemoryStates(online, 10**9) if memory else online
    teacher = Teacher(target, torch.tensor(KEPT), torch.float32, source)
    samples: list[TrainSample] = _samples()
    feeder = Feeder(
        Split(samples, [], 0),
        teacher,
        settings,
        rank=0,
        world=1,
        micro_batch=len(samples),
        accum=1,
    )
    work = feeder.work(0)
    if memory:
        feeder.batch(work.micro[0])  # fills it
        source.inner = None  # type: ignore[union-attr,assignment]  # what follows must not need it
    rows, features = feeder.batch(work.micro[0])
    model = TTTModel(draft, settings, teacher.logits)
    return model(rows, features, step_coefficients(work.divisors, settings.decay)), model


@pytest.mark.parametrize(("alignment", "loss", "divisor", "oov"), EVERY)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_loss_and_gradients_equal_the_plain_loops(
    family: str, alignment: str, loss: str, divisor: str, oov: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, logits, teacher = _slow(family)
    settings = _settings(mask_alignment=alignment, loss=loss, divisor=divisor, oov=oov)
    slow = reference_loss(
        logits, KEPT, SAMPLES, teacher, STEPS, settings.decay, alignment, divisor, oov, loss
    )
    expected = _gradients(draft, slow, keep=True)
    for most, memory in ((1 << 21, False), (3 * len(KEPT), True)):  # one chunk; many, kept states
        monkeypatch.setattr(module, "CHUNK_ELEMENTS", {"cpu": most, "cuda": most})
        monkeypatch.setattr(module, "MIN_PAIRS", 1)
        sums, model = _step(family, settings, memory)
        torch.testing.assert_close(sums.total, slow.detach(), **CLOSE)
        _equal(_gradients(model.draft, sums.total), expected)


@pytest.mark.parametrize("oov", ["drop", "keep"])
def test_a_teacher_outside_the_draft_vocabulary_is_a_miss_under_either_policy(oov: str) -> None:
    sums, _ = _step("llama", _settings(oov=oov))
    other, _ = _step("llama", _settings(oov="keep" if oov == "drop" else "drop"))
    assert int(sums.oov.sum()) > 0
    assert torch.equal(sums.correct, other.correct)
    assert torch.equal(sums.oov, other.oov)
