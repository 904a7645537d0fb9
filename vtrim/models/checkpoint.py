"""Tensors of checkpoint files, read by name: safetensors or torch.save, sharded or not, never code.

Files of torch.save are read with ``weights_only``: a pickle that asks for anything but tensors,
lists and dictionaries is refused.
"""

from __future__ import annotations

import json
import pickle
import struct
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from vtrim.artifacts import read_json
from vtrim.errors import InputError

INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
WEIGHTS = ("model.safetensors", "pytorch_model.bin")

Kind = Literal["array", "saved", "tensors", "other"]

_BROKEN = (
    *(pickle.UnpicklingError, EOFError, RuntimeError, ValueError, KeyError, IndexError),
    *(TypeError, AttributeError, AssertionError, struct.error, OSError),
)


# what torch says of a pickle that asks for more than it allows, or is of another kind than its own
_FORBIDDEN = ("GLOBAL", "global", "Unsupported operand", "Unsupported class", "blocked")


def kind_of(path: Path) -> Kind:
    """What a file is by its first bytes: "saved" is torch.save's, "tensors" safetensors'.

    Raises:
        InputError: it cannot be read; a folder, for one.
    """
    try:
        with path.open("rb") as handle:
            start = handle.read(16)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    if start.startswith(b"\x93NUMPY"):
        return "array"
    if start.startswith((b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        return "saved"
    if start[8:9] == b"{" or path.suffix == ".safetensors" or path.name in INDEXES:
        return "tensors"
    return "other"


def refuse_counts(file: Path) -> None:
    """Refuses numpy's archives, which begin as torch's do: ``vtrim coverage`` writes one.

    Raises:
        InputError: it is one.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):  # cut, or older than torch's archives
        return
    if "counts.npy" in names:
        raise InputError(
            f"{file}: token counts, no vocabulary. `vtrim search` chooses one from them; "
            "--coverage takes them to judge a vocabulary by."
        )
    if any(name.endswith(".npy") for name in names):
        raise InputError(f"{file}: an archive of numpy arrays; name the d2t.npy in a folder.")


def read_pickle(path: Path) -> Any:
    """What ``torch.save`` wrote, on the CPU.

    Raises:
        InputError: the file is missing, incomplete, not from torch.save, or asks for code.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file.")
    try:
        mapped = zipfile.is_zipfile(path)  # files of torch before 1.6 are no archives
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of pickles that it then refuses
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except _BROKEN as error:
        text = " ".join(str(error).split())
        if any(sign in text for sign in _FORBIDDEN):
            raise InputError(
                f"{path}: refused, its pickle holds more than tensors, lists and dictionaries; "
                "loading it could run code. Ask its maker for safetensors."
            ) from error
        raise InputError(
            f"{path}: incomplete or not a file of torch.save ({text[:120] or 'empty'})."
        ) from error


class Checkpoint:
    """The tensors of a folder (or of one file), read from disk only when they are asked for.

    path: the file to name in messages, the index where there are several files.
    """

    def __init__(self, path: Path) -> None:
        self.path = _weight_file(path) if path.is_dir() else path
        if not self.path.exists():
            raise InputError(f"{self.path}: no such file.")
        self._readers: dict[str, _Reader] = {}
        for file in _shards(self.path):
            reader: _Reader = _Pickle(file) if kind_of(file) == "saved" else _Safetensors(file)
            for name in reader.names:
                self._readers[name] = reader

    @property
    def names(self) -> list[str]:
        """Names of the tensors, as they are in the file, sorted."""
        return sorted(self._readers)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor, without reading it."""
        return self._readers[name].shape(name)

    def tensor(self, name: str) -> Tensor:
        """One tensor, on the CPU, in the file's dtype."""
        return self._readers[name].tensor(name)


def _weight_file(folder: Path) -> Path:
    """The file that names a folder's tensors: an index, else the one file of weights."""
    for name in (*WEIGHTS, *INDEXES):
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"{folder}: holds no model.safetensors and no pytorch_model.bin.")


def _shards(path: Path) -> Iterable[Path]:
    if path.suffix != ".json":
        return [path]
    index = read_json(path)
    weights = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weights, dict) or not weights:
        raise InputError(f"{path}: names no weight_map; not the index of a checkpoint.")
    for value in weights.values():
        if not isinstance(value, str) or not Path(value).name:
            raise InputError(f"{path}: its weight_map names {value!r}, which is no file.")
    files = [path.with_name(Path(name).name) for name in sorted(set(weights.values()))]
    for file in files:
        if not file.exists():
            raise InputError(f"{file}: no such file, but {path.name} names it; incomplete.")
    return files


class _Safetensors:
    def __init__(self, path: Path) -> None:
        self._file = _open_safetensors(path)
        self.names: list[str] = list(self._file.keys())

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._file.get_slice(name).get_shape())

    def tensor(self, name: str) -> Tensor:
        value: Tensor = self._file.get_tensor(name)
        return value


def _open_safetensors(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError, json.JSONDecodeError, ValueError) as error:
        raise InputError(f"{path}: incomplete or not a safetensors file ({error}).") from error


class _Pickle:
    def __init__(self, path: Path) -> None:
        found = read_pickle(path)
        if isinstance(found, Mapping) and isinstance(found.get("state_dict"), Mapping):
            found = found["state_dict"]
        if not isinstance(found, Mapping):
            raise InputError(f"{path}: holds a {type(found).__name__}, not named tensors.")
        self._tensors = {str(k): v for k, v in found.items() if isinstance(v, Tensor)}
        self.names = list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name]


_Reader = _Safetensors | _Pickle
