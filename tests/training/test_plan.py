"""The data plan does not depend on the number of processes, and loses no sample."""

from __future__ import annotations

import numpy as np
import pytest

from vtrim.errors import InputError
from vtrim.training.plan import BatchPlan


def _plan(samples: int, slots: int, micro: int = 3, seed: int = 1) -> BatchPlan:
    lengths = np.random.default_rng(0).integers(5, 90, samples)
    return BatchPlan(lengths, slots, micro, seed)


@pytest.mark.parametrize(("samples", "slots"), [(100, 1), (101, 2), (64, 4), (7, 3)])
def test_an_epoch_visits_every_sample(samples: int, slots: int) -> None:
    plan = _plan(samples, slots)
    seen = [i for n in range(plan.steps_per_epoch) for batch in plan.step(n) for i in batch]
    assert set(seen) == set(range(samples))
    assert len(seen) - samples < slots * plan.micro_batch  # only the filler repeats


def test_a_sample_stays_in_its_slot_in_every_epoch() -> None:
    plan = _plan(50, 2)
    for number in range(3 * plan.steps_per_epoch):
        for slot, batch in enumerate(plan.step(number)):
            assert {i % 2 for i in batch} == {slot}


def test_a_step_is_the_same_whenever_it_is_asked_for() -> None:
    first, second = _plan(50, 2), _plan(50, 2)
    late = second.step(40)
    assert [first.step(n) for n in range(41)][40] == late
    assert first.step(0) != _plan(50, 2, seed=2).step(0)


def test_fewer_samples_than_micro_batches_a_step_are_refused() -> None:
    with pytest.raises(InputError, match="2 training samples cannot fill 4"):
        _plan(2, 4).check()
