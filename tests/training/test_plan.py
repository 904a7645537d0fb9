"""The data plan does not depend on the number of processes, and loses no sample."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrim.errors import InputError
from vtrim.training.forward import forward_groups, padding_share
from vtrim.training.plan import BatchPlan, pack

PACKED = pytest.mark.parametrize("pack_to", [None, 200])


def _plan(
    samples: int, slots: int, pack_to: int | None = None, micro: int = 3, seed: int = 1
) -> BatchPlan:
    lengths = np.random.default_rng(0).integers(5, 90, samples)
    return BatchPlan(lengths, slots, micro, seed, pack_to)


def _members(plan: BatchPlan, number: int) -> list[list[int]]:
    """The samples of each slot at a step."""
    return [[i for documents in bins for i in documents] for bins in plan.step(number)]


@PACKED
@pytest.mark.parametrize(("samples", "slots"), [(100, 1), (101, 2), (64, 4), (7, 3)])
def test_an_epoch_visits_every_sample(samples: int, slots: int, pack_to: int | None) -> None:
    plan = _plan(samples, slots, pack_to)
    seen = [bins for n in range(plan.steps_per_epoch) for bins in plan.step(n)]
    assert {i for bins in seen for documents in bins for i in documents} == set(range(samples))
    assert all(len(bins) == plan.micro_batch for bins in seen)
    if pack_to is None:  # only the filler repeats
        assert sum(map(len, seen)) - samples < slots * plan.micro_batch


@PACKED
def test_a_sample_stays_in_its_slot_in_every_epoch(pack_to: int | None) -> None:
    plan = _plan(50, 2, pack_to)
    for number in range(3 * plan.steps_per_epoch):
        for slot, members in enumerate(_members(plan, number)):
            assert {i % 2 for i in members} == {slot}


@PACKED
def test_a_step_is_the_same_whenever_it_is_asked_for(pack_to: int | None) -> None:
    first, second = _plan(50, 2, pack_to), _plan(50, 2, pack_to)
    late = second.step(40)
    assert [first.step(n) for n in range(41)][40] == late
    assert first.step(0) != _plan(50, 2, pack_to, seed=2).step(0)


def test_packing_is_the_same_in_every_epoch_and_its_order_is_not() -> None:
    plan = _plan(60, 2, 200, micro=1)

    def epoch(number: int) -> list[tuple[int, ...]]:
        steps = range(number * plan.steps_per_epoch, (number + 1) * plan.steps_per_epoch)
        return [tuple(documents) for n in steps for documents in plan.step(n)[0]]

    assert epoch(0) != epoch(1)
    assert set(epoch(0)) == set(epoch(1))
    assert max(map(len, epoch(0))) > 2


def test_fewer_samples_than_micro_batches_a_step_are_refused() -> None:
    with pytest.raises(InputError, match="2 training samples cannot fill 4"):
        _plan(2, 4).check()


def test_a_bin_is_filled_where_the_sample_fits_best() -> None:
    lengths = np.array([5, 9, 4, 1, 6, 2, 12])
    # 12 is too long for 10 and stands alone; 9 takes the 1; 6 takes the 4; 5 takes the 2
    bins = pack(np.arange(7), lengths, 10)
    assert sorted(map(sorted, bins)) == [[0, 5], [1, 3], [2, 4], [6]]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=60), st.integers(0, 5))
def test_packing_keeps_every_sample_once_and_wastes_less_than_half(
    sizes: list[int], seed: int
) -> None:
    lengths, room = np.array(sizes), 30
    order = np.random.default_rng(seed).permutation(lengths.size)
    bins = pack(order, lengths, room)
    assert sorted(i for members in bins for i in members) == list(range(lengths.size))
    filled = [int(lengths[members].sum()) for members in bins]
    assert max(filled) <= room
    assert sum(size <= room / 2 for size in filled) <= 1, "two of them would fit into one"


@given(st.lists(st.integers(1, 20_000), min_size=1, max_size=40))
def test_forwards_of_like_length_lose_no_sample_and_little_to_padding(sizes: list[int]) -> None:
    groups = forward_groups(sizes)
    assert sorted(i for group in groups for i in group) == list(range(len(sizes)))
    for group in groups:
        longest = max(sizes[i] for i in group)
        assert len(group) == 1 or len(group) * longest <= 16_384
        assert min(sizes[i] for i in group) >= 0.8 * longest
    assert 0 <= padding_share([sizes]) <= 0.2


def test_the_padding_share_is_padding_over_all_tokens() -> None:
    # forwards of 10 + 8 (2 of 20 tokens are padding) and of 3
    assert padding_share([[3, 10, 8]]) == pytest.approx(2 / 23)
    assert padding_share([[7, 7], [5]]) == 0
