from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrim.errors import InputError
from vtrim.trimming.sample import MAX_TOKENS, HeldoutSample, SampleBuilder


def build(rows: list[tuple[int, list[int]]], limit: int = 3) -> HeldoutSample:
    builder = SampleBuilder(limit)
    for key, ids in rows:
        if builder.wants(key):
            builder.add(key, np.array(ids, dtype=np.int64))
    return builder.build()


def shown(sample: HeldoutSample) -> list[tuple[int, int, list[int]]]:
    lists = [ids.tolist() for ids in sample.conversations()]
    return list(zip(sample.keys.tolist(), sample.times.tolist(), lists, strict=True))


def test_the_smallest_keys_are_kept_in_order() -> None:
    found = build([(9, [1]), (4, [2, 2]), (7, []), (1, [3]), (8, [4])])
    assert shown(found) == [(1, 1, [3]), (4, 1, [2, 2]), (7, 1, [])]


def test_a_full_sample_wants_only_smaller_keys_and_the_ones_it_has() -> None:
    builder = SampleBuilder(2)
    for key in (5, 3):
        builder.add(key, np.array([1], dtype=np.int64))
    assert [builder.wants(key) for key in (2, 3, 4, 5, 6)] == [True, True, True, True, False]


def test_a_conversation_that_stands_twice_is_kept_once_with_its_number() -> None:
    assert shown(build([(4, [1]), (4, [1]), (6, [2])])) == [(4, 2, [1]), (6, 1, [2])]


def test_other_recorded_ids_of_equal_messages_do_not_depend_on_order() -> None:
    rows = [(4, [2, 1]), (4, [1, 9])]
    assert shown(build(rows)) == shown(build(rows[::-1])) == [(4, 2, [1, 9])]


def test_a_long_conversation_keeps_its_first_tokens() -> None:
    assert build([(1, [7] * (MAX_TOKENS + 5))]).lengths.tolist() == [MAX_TOKENS]


def test_no_conversation_is_a_sample_too() -> None:
    assert shown(HeldoutSample.empty()) == []
    assert HeldoutSample.empty().merge(build([(1, [5])])).size == 1


@given(
    st.lists(st.tuples(st.integers(0, 20), st.lists(st.integers(0, 9), max_size=3)), max_size=30),
    st.integers(0, 30),
)
def test_samples_of_two_parts_merge_to_the_sample_of_the_whole(rows: Any, cut: int) -> None:
    limit = 3
    whole = build(rows, limit)
    builder = SampleBuilder(limit)
    for part in (build(rows[:cut], limit), build(rows[cut:], limit)):
        for key, times, ids in zip(part.keys, part.times, part.conversations(), strict=True):
            builder.put(int(key), int(times), ids)
    assert shown(builder.build()) == shown(whole)


def test_arrays_that_do_not_fit_together_are_refused() -> None:
    one = np.array([1], dtype=np.int64)
    for wrong in ({"ids": np.array([1, 2])}, {"times": one * 0}, {"keys": np.array([2, 1])}):
        with pytest.raises(InputError, match="not whole"):
            HeldoutSample(**{"keys": one, "times": one, "lengths": one, "ids": one, **wrong})


@pytest.mark.parametrize(
    "changed",
    [
        {"ids": np.array([[1, 2, 3]])},
        {"ids": np.array([1.0, 2.0, 3.0])},
        {"lengths": np.array([4, -1])},
        {"keys": np.array([[1], [2]])},
    ],
)
def test_arrays_that_are_no_sample_are_refused(changed: dict[str, Any]) -> None:
    arrays = {"keys": [1, 2], "times": [1, 1], "lengths": [2, 1], "ids": [1, 2, 3]}
    whole = {name: np.array(values) for name, values in arrays.items()}
    HeldoutSample(**whole)
    with pytest.raises(InputError, match="not whole"):
        HeldoutSample(**{**whole, **changed})
