from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vtrim.errors import InputError, OptionError
from vtrim.models.vocab_files import read_vocab, write_vocab
from vtrim.models.vocab_formats import FORMATS
from vtrim.vocab import DraftVocab

IDS = [0, 3, 4, 9, 17]
OFFSETS = [0, 2, 2, 6, 13]
VOCAB = DraftVocab.of(IDS, 20)


def content(folder: Path, file_format: str) -> dict[str, bytes]:
    """What a format leaves, by file name."""
    files = write_vocab(VOCAB, folder / "out", file_format)
    return {file.name: file.read_bytes() for file in files}


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_format_round_trips_to_the_same_bytes(tmp_path: Path, file_format: str) -> None:
    once = content(tmp_path / "once", file_format)
    found = read_vocab(tmp_path / "once" / "out", target_vocab_size=20)
    assert found.vocab.fingerprint == VOCAB.fingerprint
    assert (found.format, found.moved) == (file_format, 0)
    write_vocab(found.vocab, tmp_path / "twice" / "out", file_format)
    assert content(tmp_path / "twice", file_format) == once


def test_specforge_gets_offsets_and_a_mask(tmp_path: Path) -> None:
    write_vocab(VOCAB, tmp_path / "vocab_mapping.pt", "specforge")
    found = torch.load(tmp_path / "vocab_mapping.pt", weights_only=True)
    assert set(found) == {"d2t", "t2d"}
    assert (found["d2t"].dtype, found["d2t"].tolist()) == (torch.int64, OFFSETS)
    assert (found["t2d"].dtype, found["t2d"].nonzero()[:, 0].tolist()) == (torch.bool, IDS)


def test_speculators_gets_two_arrays(tmp_path: Path) -> None:
    write_vocab(VOCAB, tmp_path, "speculators")
    d2t, t2d = np.load(tmp_path / "d2t.npy"), np.load(tmp_path / "t2d.npy")
    assert (d2t.dtype, d2t.tolist()) == (np.int64, OFFSETS)
    assert (t2d.dtype, np.flatnonzero(t2d).tolist(), t2d.size) == (np.bool_, IDS, 20)


def test_modelopt_gets_offsets_sglang_a_tensor_of_ids_and_fr_spec_a_list(tmp_path: Path) -> None:
    kinds = {"modelopt": OFFSETS, "hot-token-ids": IDS, "fr-spec": IDS}
    for file_format, wanted in kinds.items():
        write_vocab(VOCAB, tmp_path / file_format, file_format)
        found = torch.load(tmp_path / file_format, weights_only=True)
        assert torch.as_tensor(found).tolist() == wanted
        assert isinstance(found, list) == (file_format == "fr-spec")


@pytest.mark.parametrize(
    ("value", "file_format", "moved"),
    [
        ({"d2t": torch.tensor(OFFSETS), "t2d": torch.from_numpy(VOCAB.t2d)}, "specforge", 0),
        (
            {"d2t": torch.tensor(IDS).int(), "t2d": torch.from_numpy(VOCAB.t2d).int()},
            "specforge",
            0,
        ),
        ({"d2t": OFFSETS, "t2d": VOCAB.t2d.tolist()}, "specforge", 0),
        ([9, 0, 17, 3, 4], "fr-spec", 5),
        (torch.tensor([4, 3, 17, 0, 9], dtype=torch.int32), "hot-token-ids", 4),
        (torch.tensor([9, 0, 17, 3, 4]) - torch.arange(5), "modelopt", 5),
    ],
    ids=["offsets", "int32", "lists", "list", "tensor", "by frequency"],
)
def test_files_of_torch_are_told_apart_by_content(
    tmp_path: Path, value: Any, file_format: str, moved: int
) -> None:
    torch.save(value, tmp_path / "any.pt")
    found = read_vocab(tmp_path / "any.pt", target_vocab_size=20)
    assert found.vocab.ids.tolist() == IDS
    assert (found.format, found.moved) == (file_format, moved)


def test_either_array_of_speculators_finds_the_other(tmp_path: Path) -> None:
    write_vocab(VOCAB, tmp_path, "speculators")
    for name in ("d2t.npy", "t2d.npy"):
        assert read_vocab(tmp_path / name).vocab.fingerprint == VOCAB.fingerprint
    (tmp_path / "d2t.npy").unlink()
    assert read_vocab(tmp_path).vocab.fingerprint == VOCAB.fingerprint


@pytest.mark.parametrize("name", ["vocab_mapping.pt", "cache.pt", "d2t.pt"])
def test_a_folder_is_searched_for_the_names_that_peers_use(tmp_path: Path, name: str) -> None:
    write_vocab(VOCAB, tmp_path / name, "modelopt" if name == "d2t.pt" else "specforge")
    assert read_vocab(tmp_path, target_vocab_size=20).path.name == name


def test_ids_in_text_may_be_separated_and_commented(tmp_path: Path) -> None:
    (tmp_path / "ids").write_text("\ufeff# mine\n0, 3 4\n9 # nine\n\n17\n", encoding="utf-8")
    assert read_vocab(tmp_path / "ids", target_vocab_size=20).vocab.ids.tolist() == IDS
    (tmp_path / "ids.json").write_text(json.dumps({"ids": [17, 0, 3, 4, 9]}))
    assert read_vocab(tmp_path / "ids.json", target_vocab_size=20).moved == 5


def test_a_size_that_is_only_assumed_gives_way_to_the_file(tmp_path: Path) -> None:
    VOCAB.save(tmp_path / "vocab.safetensors")
    found = read_vocab(tmp_path, assumed_size=99)
    assert found.vocab.target_vocab_size == 20
    with pytest.raises(InputError, match="made for a head of 20 rows, not for one of 99"):
        read_vocab(tmp_path, target_vocab_size=99)


class Opens:
    """A pickle that would run a command when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch owned",)


@pytest.mark.parametrize("way", ["torch", "pickle"])
def test_a_pickle_that_asks_for_code_is_refused_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if way == "torch":
        torch.save({"d2t": Opens()}, "evil.pt")
    else:
        Path("evil.pt").write_bytes(pickle.dumps(Opens(), protocol=2))
    with pytest.raises(InputError, match=r"^evil\.pt: refused, its pickle holds more than tensors"):
        read_vocab(Path("evil.pt"), target_vocab_size=20)
    assert not Path("owned").exists()


@pytest.mark.parametrize("file_format", ["specforge", "fr-spec", "vtrim"])
def test_a_cut_file_is_incomplete(tmp_path: Path, file_format: str) -> None:
    path = tmp_path / "cut"
    write_vocab(VOCAB, path, file_format)
    whole = path.read_bytes()
    for size in (20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"cut: (incomplete|no vocabulary)"):
            read_vocab(path, target_vocab_size=20)


def test_a_cut_array_is_incomplete(tmp_path: Path) -> None:
    write_vocab(VOCAB, tmp_path, "speculators")
    path = tmp_path / "d2t.npy"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InputError, match=r"d2t\.npy: incomplete"):
        read_vocab(tmp_path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"weight": torch.zeros(2)}, "holds weight, but no d2t or t2d; no draft vocabulary"),
        (torch.zeros(3), "not a list of whole numbers"),
        ("words", "is a str, not a list of whole numbers"),
        ([1, 1], "not distinct token ids"),
        ([1, 20], "not distinct token ids of a head of 20 rows"),
        ([-1, 2], "not distinct token ids"),
    ],
)
def test_files_of_torch_that_hold_something_else_are_refused(
    tmp_path: Path, value: Any, message: str
) -> None:
    torch.save(value, tmp_path / "any.pt")
    with pytest.raises(InputError, match=message):
        read_vocab(tmp_path / "any.pt", target_vocab_size=20)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 two 3", "ids:1: 'two' is not a token id"),
        ("[1, 2", "not whole JSON"),
        ('{"a": 1}', "no list of token ids"),
        ("", "0 numbers"),
    ],
)
def test_a_text_that_holds_no_ids_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "ids").write_text(text)
    with pytest.raises(InputError, match=message):
        read_vocab(tmp_path / "ids", target_vocab_size=20)


def test_what_is_not_there_and_what_is_no_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_vocab(tmp_path / "nothing")
    with pytest.raises(InputError, match="holds no vocabulary"):
        read_vocab(tmp_path)
    with pytest.raises(OptionError, match=r"--format zip: unknown\. Known: vtrim, specforge"):
        write_vocab(VOCAB, tmp_path / "x", "zip")


def test_a_pickle_of_another_kind_is_refused_without_a_word_of_torch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "evil.pkl"
    path.write_bytes(pickle.dumps({"d2t": Opens()}, protocol=4))
    with pytest.raises(InputError, match=r"evil\.pkl: refused, .*loading it could run code"):
        read_vocab(path, target_vocab_size=20)
    assert capsys.readouterr().err == ""


def test_json_too_deep_or_with_a_number_too_long_is_refused(tmp_path: Path) -> None:
    for text in ("[" * 100_000, "[" + "1" * 5000 + "]"):
        (tmp_path / "ids.json").write_text(text)
        with pytest.raises(InputError, match="not whole JSON, or no list of ids"):
            read_vocab(tmp_path / "ids.json", target_vocab_size=20)


@pytest.mark.parametrize("name", ["vocab.safetensors", "vocab_mapping.pt", "model.safetensors"])
def test_a_folder_with_the_name_of_a_file_holds_no_vocabulary(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(InputError, match="holds no vocabulary"):
            read_vocab(path)


@pytest.mark.parametrize("value", [None, 5, ["a"], ""])
def test_an_index_that_names_no_file_is_refused(tmp_path: Path, value: object) -> None:
    weights = {"fc.weight": "model-1.safetensors", "d2t": value}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weights}))
    with pytest.raises(InputError, match=r"its weight_map names .*, which is no file"):
        read_vocab(tmp_path)


def test_a_file_that_tells_no_rows_of_the_head_is_known_as_such(tmp_path: Path) -> None:
    torch.save([9, 0, 3], tmp_path / "freq.pt")
    VOCAB.save(tmp_path / "vocab.safetensors")
    assert read_vocab(tmp_path / "freq.pt", assumed_size=20).assumed
    assert not read_vocab(tmp_path / "freq.pt", target_vocab_size=20).assumed
    assert not read_vocab(tmp_path / "vocab.safetensors", assumed_size=99).assumed
