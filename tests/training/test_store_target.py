"""Which weights a target has, told from its files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from vtrim.artifacts import fingerprint_file
from vtrim.errors import InputError
from vtrim.training import target_weights as module
from vtrim.training.target_weights import weights_fingerprint


@pytest.fixture
def copy(tiny_target: Path, tmp_path: Path) -> Path:
    """The tiny target in a folder of its own."""
    return Path(shutil.copytree(tiny_target, tmp_path / "copy"))


def test_a_copy_elsewhere_has_the_same_weights(tiny_target: Path, copy: Path) -> None:
    (copy / "README.md").write_text("moved")
    assert weights_fingerprint(str(copy)) == weights_fingerprint(str(tiny_target))


def test_a_target_trained_on_in_any_one_tensor_has_others(copy: Path) -> None:
    before = weights_fingerprint(str(copy))
    path = copy / "model.safetensors"
    tensors = load_file(path)
    assert len(tensors) > 70
    found = {before}
    for name in list(tensors)[::7]:
        changed = {**tensors, name: tensors[name] * 1.001}
        save_file(changed, path, metadata={"format": "pt"})
        found.add(weights_fingerprint(str(copy)))
    assert len(found) == 1 + len(list(tensors)[::7])


def test_one_retrained_row_anywhere_in_the_embedding_is_seen(tmp_path: Path) -> None:
    embedding = torch.zeros(2000, 64)
    found = set()
    for row in range(0, 2000, 37):
        embedding[row] += 1
        save_file({"embed": embedding}, tmp_path / "model.safetensors")
        found.add(weights_fingerprint(str(tmp_path)))
        embedding[row] -= 1
    assert len(found) == 55


def test_a_large_file_is_read_once_until_it_changes(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy / "model.safetensors"
    read: list[Path] = []

    def hashed(file: Path) -> str:
        read.append(file)
        return fingerprint_file(file)

    monkeypatch.setattr(module, "fingerprint_file", hashed)
    monkeypatch.setattr(module, "REMEMBERED", path.stat().st_size)
    monkeypatch.setenv("VTRIM_CACHE", str(tmp_path / "cache"))
    first = weights_fingerprint(str(copy))
    assert weights_fingerprint(str(copy)) == first
    assert len(read) == 1
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as `cp -p` leaves it
    assert weights_fingerprint(str(copy)) != first
    assert len(read) == 2


def test_a_cache_that_is_damaged_or_cannot_be_written_costs_only_time(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = weights_fingerprint(str(copy))
    monkeypatch.setattr(module, "REMEMBERED", 0)
    monkeypatch.setenv("VTRIM_CACHE", str(tmp_path / "cache"))
    assert weights_fingerprint(str(copy)) == whole
    for note in (tmp_path / "cache" / "weights").iterdir():
        note.write_text("[1,")
    assert weights_fingerprint(str(copy)) == whole
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("VTRIM_CACHE", str(tmp_path / "file"))
    assert weights_fingerprint(str(copy)) == whole


def test_weights_of_another_format_are_told_apart_too(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(bytes(10_000))
    zeros = weights_fingerprint(str(tmp_path))
    path.write_bytes(bytes(9_999) + b"x")
    assert weights_fingerprint(str(tmp_path)) != zeros


def test_weights_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(InputError, match="the weights cannot be read"):
        weights_fingerprint(str(tmp_path))


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no weights"):
        weights_fingerprint(str(tmp_path))
