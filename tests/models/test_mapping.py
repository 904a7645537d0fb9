from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vtrim.errors import InputError
from vtrim.models.mapping import as_ints, as_mask, find_ids
from vtrim.vocab import DraftVocab

IDS = [0, 3, 4, 9, 17]
OFFSETS = np.array([0, 2, 2, 6, 13])
MASK = np.isin(np.arange(20), IDS)


def test_offsets_with_their_mask_give_the_ids() -> None:
    found = find_ids(OFFSETS, MASK, None, "x")
    assert (found.ids.tolist(), found.target_vocab_size, found.meaning) == (IDS, 20, "offsets")
    assert found.is_sorted


def test_absolute_ids_with_their_mask_are_read_as_such() -> None:
    found = find_ids(np.array(IDS), MASK, None, "x")
    assert (found.ids.tolist(), found.meaning) == (IDS, "absolute")


def test_the_mask_decides_the_size_whatever_was_assumed() -> None:
    assert find_ids(OFFSETS, MASK, 999, "x").target_vocab_size == 20


def test_a_mask_alone_is_enough() -> None:
    assert find_ids(None, MASK, None, "x").ids.tolist() == IDS


def test_offsets_alone_are_known_by_what_they_cannot_be() -> None:
    found = find_ids(OFFSETS, None, 20, "x")  # 2 stands twice: no ids
    assert (found.ids.tolist(), found.meaning) == (IDS, "offsets")


def test_ids_alone_are_known_by_what_they_cannot_be() -> None:
    found = find_ids(np.array(IDS), None, 20, "x")  # 17 + 4 is beyond the head: no offsets
    assert (found.ids.tolist(), found.meaning) == (IDS, "absolute")


def test_offsets_in_order_of_frequency_keep_that_order() -> None:
    by_frequency = np.array([9, 0, 17, 3, 4])
    found = find_ids(by_frequency - np.arange(5), None, 20, "x")  # 4 - 4 = 0, 0 - 1 = -1
    assert (found.ids.tolist(), found.meaning) == ([9, 0, 17, 3, 4], "offsets")
    assert found.order.tolist() == [1, 3, 4, 0, 2]
    assert found.vocab("x").ids.tolist() == IDS
    assert not found.is_sorted


def test_all_zero_offsets_are_the_first_ids() -> None:
    found = find_ids(np.zeros(4, dtype=np.int64), None, 4, "x")
    assert found.vocab("x").is_full


def test_what_can_be_both_is_refused_and_the_format_decides() -> None:
    both = np.array([0, 3, 4])  # ids 0 3 4, or offsets of 0 4 6
    with pytest.raises(InputError, match=r"offsets or absolute token ids; say which with --format"):
        find_ids(both, None, 20, "x")
    assert find_ids(both, None, 20, "x", "offsets").ids.tolist() == [0, 4, 6]
    assert find_ids(both, None, 20, "x", "absolute").ids.tolist() == [0, 3, 4]
    assert find_ids(both, None, 20, "x", usual="offsets").ids.tolist() == [0, 4, 6]
    with pytest.raises(InputError, match="give --target-vocab-size, or say which"):
        find_ids(both, None, None, "x")


@pytest.mark.parametrize(
    ("d2t", "size", "message"),
    [
        ([0, 2, 3], None, "d2t .3 entries. and t2d .5 of 20. name other ids"),
        ([5, 5, 99], 20, r"its 3 numbers .5 to 99. are not distinct token ids of a head of 20"),
        ([], 20, "0 numbers"),
    ],
)
def test_what_is_neither_is_refused(d2t: list[int], size: int | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_ids(np.array(d2t, dtype=np.int64), None if size else MASK, size, "x")


def test_neither_d2t_nor_t2d_is_no_vocabulary() -> None:
    with pytest.raises(InputError, match="x: holds neither d2t nor t2d"):
        find_ids(None, None, 20, "x")


def test_an_unknown_head_must_be_named() -> None:
    with pytest.raises(InputError, match="give --target-vocab-size, --target or --run"):
        find_ids(OFFSETS, None, None, "x").vocab("x")


@given(st.sets(st.integers(0, 99), min_size=1), st.booleans())
def test_with_a_mask_both_readings_give_back_every_vocabulary(
    ids: set[int], absolute: bool
) -> None:
    vocab = DraftVocab.of(ids, 100)
    stored = vocab.ids if absolute else vocab.d2t
    assert find_ids(stored, vocab.t2d, None, "x").vocab("x").fingerprint == vocab.fingerprint


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor(IDS, dtype=torch.int32),
        torch.tensor(IDS),
        np.array(IDS, dtype=np.uint16),
        IDS,
    ],
    ids=["int32", "int64", "uint16", "list"],
)
def test_whole_numbers_of_any_type_are_read(values: object) -> None:
    assert as_ints(values, "x", "d2t").tolist() == IDS


@pytest.mark.parametrize(
    "values", [torch.tensor([0.5]), torch.zeros(2, 2).long(), ["a"], [[1], [2, 3]], {"a": 1}]
)
def test_other_values_are_no_ids(values: object) -> None:
    with pytest.raises(InputError, match=r"x: d2t is a .*, not a list of whole numbers"):
        as_ints(values, "x", "d2t")


def test_a_mask_may_hold_0_and_1_but_no_other_number() -> None:
    assert as_mask(torch.tensor([0, 1, 1]), "x").tolist() == [False, True, True]
    for wrong in (torch.tensor([0, 2]), torch.tensor([0.0, 1.0]), torch.ones(2, 2).bool()):
        with pytest.raises(InputError, match="not a mask of True and False"):
            as_mask(wrong, "x")


def test_a_bfloat16_tensor_is_no_mapping() -> None:
    with pytest.raises(InputError, match=r"d2t is a Tensor .*bfloat16, not a list"):
        as_ints(torch.zeros(3).bfloat16(), "x", "d2t")
    with pytest.raises(InputError, match=r"t2d is a Tensor .*bfloat16, not a mask"):
        as_mask(torch.zeros(3).bfloat16(), "x")


def test_the_remedy_for_what_can_be_both_works_for_every_command() -> None:
    with pytest.raises(
        InputError, match=r"vtrim vocab import 'a b\.pt' --format NAME --to ids\.safetensors"
    ):
        find_ids(np.array([0, 3, 4]), None, 20, "a b.pt")
