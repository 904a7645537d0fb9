from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtrim.errors import InputError
from vtrim.trimming.count import count


@dataclass
class Sample:
    ids: Any
    mask: Any
    heldout: bool


def sample(ids: list[int], mask: list[int], heldout: bool = False) -> Sample:
    return Sample(np.array(ids, dtype=np.int64), np.array(mask, dtype=np.bool_), heldout)


def ids_of(*ids: int) -> Any:
    return np.array(ids, dtype=np.int64)


def test_only_masked_tokens_count() -> None:
    counts, heldout = count([sample([1, 2, 2, 3], [0, 1, 1, 0])], 5)
    assert counts.tolist() == [0, 0, 2, 0, 0]
    assert heldout.tolist() == [0] * 5


def test_held_out_samples_count_in_both_arrays() -> None:
    counts, heldout = count([sample([1], [1]), sample([1, 4], [1, 1], heldout=True)], 5)
    assert counts.tolist() == [0, 2, 0, 0, 1]
    assert heldout.tolist() == [0, 1, 0, 0, 1]


def test_without_a_mask_every_token_counts_and_weights_say_how_often() -> None:
    counts, _ = count([(ids_of(0, 0, 3), None, False), (ids_of(3, 1), ids_of(10, 2), False)], 4)
    assert counts.tolist() == [2, 2, 0, 11]


def test_counts_are_exact_64_bit_integers() -> None:
    large = 2**53 + 1  # a double cannot hold it
    counts, _ = count([(ids_of(1), ids_of(large), False), (ids_of(1), None, False)], 2)
    assert counts.dtype == np.int64
    assert counts[1] == large + 1


def test_nothing_gives_zeros() -> None:
    counts, heldout = count([sample([], []), sample([1], [0])], 2)
    assert counts.tolist() == heldout.tolist() == [0, 0]


@pytest.mark.parametrize("wrong", [7, -1])
def test_an_id_without_a_row_is_refused(wrong: int) -> None:
    with pytest.raises(InputError, match=rf"token id {wrong} has no row .* 7 rows"):
        count([(ids_of(3, wrong), None, False)], 7)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=20), st.booleans()
        ),
        max_size=10,
    )
)
def test_counts_equal_a_plain_loop_in_any_order(made: Any) -> None:
    samples = [sample([i for i, _ in row], [m for _, m in row], held) for row, held in made]
    plain = [[0] * 10, [0] * 10]
    for row, held in made:
        for token, masked in row:
            plain[0][token] += masked
            plain[1][token] += masked and held
    for order in (samples, samples[::-1]):
        assert [array.tolist() for array in count(order, 10)] == plain
