"""Which weights a target has, told from its files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from vtrim.errors import InputError
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


def test_a_large_tensor_is_sampled_from_end_to_end(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    weight = torch.zeros(1000, 1000)
    found = set()
    for place in (0, 499_999 + 71_000, 999_999):
        weight.zero_()
        weight.view(-1)[max(0, place - 80_000) : place + 80_000] = 1
        save_file({"w": weight}, path)
        found.add(weights_fingerprint(str(tmp_path)))
    assert len(found) == 3


def test_weights_of_another_format_are_told_apart_too(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(bytes(10_000))
    zeros = weights_fingerprint(str(tmp_path))
    path.write_bytes(bytes(9_999) + b"x")
    assert weights_fingerprint(str(tmp_path)) != zeros


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, b"\x08" + bytes(7) + b"no json!"])
def test_a_file_that_is_no_safetensors_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"model\.safetensors: cannot be read as weights"):
        weights_fingerprint(str(tmp_path))


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no weights"):
        weights_fingerprint(str(tmp_path))
