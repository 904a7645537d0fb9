"""The files of a feature store: one manifest, and shards that describe themselves.

A shard is an ordinary safetensors file of four tensors, the samples one after the other: ``aux``
[sum T, 3d], ``hidden`` [sum m, d], ``best`` int32 and ``log_z`` fp32 [sum m]. Its header says which
sample lies where (by content, not by index), to which store it belongs, and the checksums.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vtrim.artifacts import atomic_path
from vtrim.errors import InputError
from vtrim.training.batch import TrainSample
from vtrim.training.states import SampleStates

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
_CODES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.int32: "I32"}
_MAX_HEADER = 1 << 27
_PIECE, _MAX_GROUP = 1 << 20, 512


def sample_key(sample: TrainSample) -> str:
    """What a sample is known by: a hash of its ids and mask, wherever it stands in the data."""
    digest = hashlib.blake2b(sample.ids.astype("<i8", copy=False).tobytes(), digest_size=16)
    digest.update(np.packbits(sample.loss_mask).tobytes())
    return digest.hexdigest()


class ShardBuffer:
    """Samples collected for the next shard, in the dtypes of the file, checksums kept up."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtypes = {
            "best": torch.int32,  # the wide values first: every tensor stays aligned
            "log_z": torch.float32,
            "aux": dtype,
            "hidden": dtype,
        }
        self.kept: dict[str, SampleStates] = {}
        self.nbytes = 0
        self._places: dict[str, list[int]] = {}
        self._crc = dict.fromkeys(self.dtypes, 0)
        self._rows = dict.fromkeys(self.dtypes, 0)

    def add(self, key: str, states: SampleStates) -> None:
        """Takes the states of one sample, copied off the device."""
        kept = SampleStates(
            **{name: getattr(states, name).to("cpu", kind) for name, kind in self.dtypes.items()}
        )
        tokens, count = kept.aux.shape[0], kept.hidden.shape[0]
        self._places[key] = [self._rows["aux"], tokens, self._rows["hidden"], count]
        for name in self.dtypes:
            values = getattr(kept, name)
            self._crc[name] = zlib.crc32(_bytes(values), self._crc[name])
            self._rows[name] += values.shape[0]
        self.kept[key] = kept
        self.nbytes += kept.nbytes

    def write(self, path: Path, store: str) -> None:
        """Writes the shard atomically; ``store`` is the fingerprint of the manifest.

        Raises:
            InputError: the disk is full, or the folder cannot be written.
        """
        with atomic_path(path) as temporary, temporary.open("wb", buffering=0) as file:
            kept = self.kept.values()
            tensors = (_bytes(getattr(one, name)) for name in self.dtypes for one in kept)
            _write_all(file.fileno(), [self._header(store), *tensors])

    def _header(self, store: str) -> bytes:
        first = next(iter(self.kept.values()))
        entries: dict[str, Any] = {}
        end = 0
        for name, kind in self.dtypes.items():
            shape = [self._rows[name], *getattr(first, name).shape[1:]]
            begin, end = end, end + int(np.prod(shape)) * kind.itemsize
            entries[name] = {"dtype": _CODES[kind], "shape": shape, "data_offsets": [begin, end]}
        told = {"store": store, "crc32": self._crc, "tensors": entries, "samples": self._places}
        index = json.dumps(told, separators=(",", ":"))
        about = {"format": "pt", "vtrim": index, "vtrim_crc32": str(zlib.crc32(index.encode()))}
        text = json.dumps({"__metadata__": about, **entries}, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)  # the format aligns the tensors to 8 bytes
        return len(text).to_bytes(8, "little") + text


def _bytes(values: Tensor) -> Any:
    """The tensor's memory as the file has it, not copied."""
    return values.contiguous().view(-1).view(torch.uint8).numpy()


def _write_all(handle: int, parts: Iterable[Any]) -> None:
    """Writes the parts, about ``_PIECE`` bytes a call: more at once is slower, by far."""
    group: list[memoryview] = []
    size = 0
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), _PIECE):
            group.append(view[start : start + _PIECE])
            size += len(group[-1])
            if size >= _PIECE or len(group) == _MAX_GROUP:
                _write_group(handle, group)
                group, size = [], 0
    _write_group(handle, group)


def _write_group(handle: int, group: list[memoryview]) -> None:
    while group:
        written = os.writev(handle, group)
        while group and written >= len(group[0]):
            written -= len(group.pop(0))
        if written:
            group[0] = group[0][written:]


@dataclass(frozen=True, eq=False)
class Shard:
    """A shard whose header is read. ``samples``: key -> first token, T, first state, m."""

    path: Path
    start: int
    tensors: dict[str, Any]
    crc32: dict[str, int]
    samples: dict[str, list[int]]

    @cached_property
    def _data(self) -> dict[str, Tensor]:
        """The four tensors, mapped into memory: read from disk when they are touched."""
        try:
            size = self.path.stat().st_size
            raw = torch.from_file(str(self.path), shared=False, size=size, dtype=torch.uint8)
        except (OSError, RuntimeError) as error:
            raise InputError(f"{self.path}: cannot be read any more ({error}).") from error
        kinds = {code: kind for kind, code in _CODES.items()}
        found = {}
        for name, entry in self.tensors.items():
            begin, end = (self.start + offset for offset in entry["data_offsets"])
            found[name] = raw[begin:end].view(kinds[entry["dtype"]]).view(entry["shape"])
        return found

    def read(self, key: str) -> SampleStates:
        """The states of one sample: views of the file, on the CPU."""
        token, tokens, state, count = self.samples[key]
        own = slice(state, state + count)
        return SampleStates(
            aux=self._data["aux"][token : token + tokens],
            hidden=self._data["hidden"][own],
            best=self._data["best"][own].long(),
            log_z=self._data["log_z"][own],
        )

    def verify(self) -> None:
        """Reads the whole shard.

        Raises:
            InputError: its content is not what was written.
        """
        for name, values in self._data.items():
            if zlib.crc32(_bytes(values)) != self.crc32[name]:
                raise _damaged(self.path, f"the checksum of '{name}' is another")


def read_shard(path: Path, store: str) -> Shard:
    """A shard's header, checked against its own checksum, the file's size and the store.

    Raises:
        InputError: it is cut, edited, or of another store.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _MAX_HEADER:
                raise _damaged(path, "no safetensors header")
            header = json.loads(file.read(length))
        about = header.pop("__metadata__")
        index = json.loads(about["vtrim"])
        if zlib.crc32(about["vtrim"].encode()) != int(about["vtrim_crc32"]):
            raise _damaged(path, "the checksum of its index is another")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, "its header cannot be read") from error
    if index["tensors"] != header:
        raise _damaged(path, "its header was edited")
    needed = 8 + length + max(entry["data_offsets"][1] for entry in header.values())
    if (size := path.stat().st_size) != needed:
        raise _damaged(path, f"{size:,} bytes, {needed:,} were written")
    if index["store"] != store:
        raise _damaged(path, "it belongs to the states of another target")
    return Shard(path, 8 + length, header, index["crc32"], index["samples"])


def _damaged(path: Path, why: str) -> InputError:
    return InputError(
        f"{path}: not a whole shard of target states ({why}). Delete it: its samples are computed "
        "again."
    )
