from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load, save

from vtrim.errors import InputError
from vtrim.vocab import DraftVocab


def test_selected_ids_give_offsets_and_a_mask(inputs: Path) -> None:
    cases = json.loads((inputs / "g12_mapping_cases.json").read_text(encoding="utf-8"))
    assert len(cases) == 6
    for case in cases:
        vocab = DraftVocab.of(case["selected"], case["target_vocab"])
        offsets = case.get("d2t_offsets", case.get("d2t_offsets_if_sorted"))
        resolved = sorted(case.get("resolved", case.get("resolved_set")))
        assert vocab.d2t.tolist() == offsets, case["name"]
        assert (vocab.d2t + np.arange(vocab.size)).tolist() == resolved
        if "t2d" in case:
            assert vocab.t2d.astype(int).tolist() == case["t2d"]


@given(st.sets(st.integers(0, 99), min_size=1))
def test_the_mask_and_the_offsets_name_the_same_ids(ids: set[int]) -> None:
    vocab = DraftVocab.of(ids, 100)
    np.testing.assert_array_equal(np.flatnonzero(vocab.t2d), vocab.d2t + np.arange(vocab.size))
    assert vocab.ids.tolist() == sorted(ids)
    assert (vocab.d2t.dtype, vocab.t2d.dtype, vocab.t2d.size) == (np.int64, np.bool_, 100)
    assert bool(np.all(vocab.d2t >= 0) and np.all(np.diff(vocab.d2t) >= 0))


def test_the_order_of_the_ids_does_not_matter() -> None:
    assert DraftVocab.of([9, 0, 17], 20).fingerprint == DraftVocab.of([0, 9, 17], 20).fingerprint
    assert DraftVocab.of([0, 9], 20).fingerprint != DraftVocab.of([0, 9], 21).fingerprint


def test_the_full_vocabulary_has_no_offsets() -> None:
    vocab = DraftVocab.full(6)
    assert vocab.is_full
    assert vocab.d2t.tolist() == [0] * 6
    assert not DraftVocab.of([0, 1], 6).is_full


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "at least one"),
        ([3, 3], "twice"),
        ([-1, 2], r"run from -1 to 2"),
        ([0, 20], r"rows 0 to 19"),
    ],
)
def test_ids_that_make_no_vocabulary_are_refused(ids: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DraftVocab.of(ids, 20)


def test_saving_and_loading_keeps_the_vocabulary(tmp_path: Path) -> None:
    before = DraftVocab.of([2, 5, 9], 12)
    before.save(tmp_path / "vocab.safetensors", {"vtrim": "0"})
    after = DraftVocab.load(tmp_path / "vocab.safetensors")
    assert after.fingerprint == before.fingerprint
    assert after.target_vocab_size == 12
    tensors = load((tmp_path / "vocab.safetensors").read_bytes())
    assert tensors["d2t"].tolist() == [2, 4, 7]  # offsets, what every engine reads
    assert tensors["t2d"].dtype == np.bool_


def test_equal_vocabularies_give_equal_bytes(tmp_path: Path) -> None:
    metadata = {f"key {number}": "value" for number in range(8)}
    for name in "abc":
        DraftVocab.of([2, 5, 9], 12).save(tmp_path / name, metadata)
    assert len({(tmp_path / name).read_bytes() for name in "abc"}) == 1
    with safe_open(tmp_path / "a", framework="numpy") as file:
        assert file.metadata() == {"format": "pt", **metadata}


def test_a_cut_file_is_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "vocab.safetensors"
    DraftVocab.of([2, 5, 9], 12).save(path)
    whole = path.read_bytes()
    for size in (0, 5, 40, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"vocab\.safetensors: incomplete"):
            DraftVocab.load(path)


def test_a_foreign_or_missing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    with pytest.raises(InputError, match="no such file"):
        DraftVocab.load(path)
    path.write_bytes(save({"weight": np.zeros(3, dtype=np.float32)}))
    with pytest.raises(InputError, match="holds no d2t and t2d"):
        DraftVocab.load(path)


def test_absolute_ids_stored_as_offsets_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "absolute.safetensors"
    vocab = DraftVocab.of([2, 5, 9], 12)
    path.write_bytes(save({"d2t": vocab.ids, "t2d": vocab.t2d}))
    with pytest.raises(InputError, match="d2t must hold offsets"):
        DraftVocab.load(path)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"d2t": np.array([2.4, 4.4, 7.4])}, "d2t is a ndarray of .*float64, not a list of whole"),
        ({"d2t": np.array(2)}, "d2t is .*not a list of whole"),
        ({"t2d": np.isin(np.arange(12), [2, 5, 9]) * 2}, "t2d is .*int64, not a mask"),
        ({"t2d": np.isin(np.arange(12), [2, 5, 9]).reshape(2, 6)}, "t2d is .*not a mask"),
    ],
)
def test_numbers_that_are_no_mapping_are_refused_not_rounded(
    tmp_path: Path, tensors: dict[str, npt.NDArray[np.generic]], message: str
) -> None:
    path, vocab = tmp_path / "vocab.safetensors", DraftVocab.of([2, 5, 9], 12)
    path.write_bytes(save({"d2t": vocab.d2t, "t2d": vocab.t2d, **tensors}))
    with pytest.raises(InputError, match=rf"vocab\.safetensors: {message}"):
        DraftVocab.load(path)


def test_a_type_that_numpy_lacks_and_a_folder_are_refused(tmp_path: Path) -> None:
    header = b'{"d2t":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'
    path = tmp_path / "vocab.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    with pytest.raises(InputError, match="holds numbers of type 'BF16'"):
        DraftVocab.load(path)
    with pytest.raises(InputError, match="cannot be read"):
        DraftVocab.load(tmp_path)
