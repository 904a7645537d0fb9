from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtrim.errors import InputError
from vtrim.trimming.count import Counted, Tally


def sample(
    ids: list[int], mask: list[int], heldout: bool = False, source: str | None = None
) -> Counted:
    return np.array(ids, dtype=np.int64), np.array(mask, dtype=np.bool_), heldout, source


def ids_of(*ids: int) -> Any:
    return np.array(ids, dtype=np.int64)


def test_only_masked_tokens_count() -> None:
    tally = Tally(5).update([sample([1, 2, 2, 3], [0, 1, 1, 0])])
    assert tally.counts.tolist() == [0, 0, 2, 0, 0]
    assert tally.heldout_counts.tolist() == [0] * 5


def test_held_out_samples_count_in_both_arrays() -> None:
    tally = Tally(5).update([sample([1], [1]), sample([1, 4], [1, 1], heldout=True)])
    assert tally.counts.tolist() == [0, 2, 0, 0, 1]
    assert tally.heldout_counts.tolist() == [0, 1, 0, 0, 1]


def test_without_a_mask_every_token_counts_and_weights_say_how_often() -> None:
    tally = Tally(4).update(
        [(ids_of(0, 0, 3), None, False, None), (ids_of(3, 1), ids_of(10, 2), False, None)]
    )
    assert tally.counts.tolist() == [2, 2, 0, 11]


def test_counts_are_exact_64_bit_integers() -> None:
    large = 2**53 + 1  # a double cannot hold it
    tally = Tally(2).update(
        [(ids_of(1), ids_of(large), False, None), (ids_of(1), None, False, None)]
    )
    assert tally.counts.dtype == np.int64
    assert tally.counts[1] == large + 1


def test_nothing_gives_zeros() -> None:
    tally = Tally(2).update([sample([], []), sample([1], [0])])
    assert tally.counts.tolist() == tally.heldout_counts.tolist() == [0, 0]
    assert tally.by_source == {}


@pytest.mark.parametrize("wrong", [7, -1])
def test_an_id_without_a_row_is_refused(wrong: int) -> None:
    with pytest.raises(InputError, match=rf"token id {wrong} has no row .* 7 rows"):
        Tally(7).add(ids_of(3, wrong), None, False, None)


def test_counts_by_source_add_up_to_all_and_rows_without_one_have_no_name() -> None:
    tally = Tally(3).update(
        [
            sample([0], [1], source="code"),
            sample([1, 1], [1, 1], heldout=True, source="chat"),
            sample([2], [1]),
            sample([0], [1], source="chat"),
        ]
    )
    found = {name: counts.tolist() for name, counts in (tally.by_source or {}).items()}
    assert found == {"": [0, 0, 1], "chat": [1, 2, 0], "code": [1, 0, 0]}
    assert list(found) == sorted(found)


def test_data_without_a_source_column_has_no_counts_by_source() -> None:
    assert Tally(3).update([sample([0], [1])]).by_source == {}


@pytest.mark.parametrize(("names", "kept"), [(32, True), (33, False)])
def test_more_than_32_sources_are_counted_together(names: int, kept: bool) -> None:
    rows = [sample([n % 3], [1], heldout=n % 2 == 0, source=f"s{n}") for n in range(names)] * 2
    tally = Tally(3).update(rows)
    assert (tally.by_source is not None) == kept
    assert tally.counts.sum() == 2 * names
    assert tally.heldout_counts.sum() == 2 * ((names + 1) // 2)


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
        tally = Tally(10).update(order)
        assert [tally.counts.tolist(), tally.heldout_counts.tolist()] == plain
