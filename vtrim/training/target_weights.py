"""Which weights a target has, told from its files without reading them whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from vtrim.errors import InputError
from vtrim.models.hub import resolve_model

_SAMPLE = 512  # bytes read at each place
_PLACES = 8  # places sampled in a tensor, the first and the last bytes among them
_FILE_PLACES = 1024  # in a file of another format
_MAX_HEADER = 1 << 30


def weights_fingerprint(name: str, *, revision: str | None = None) -> str:
    """Fingerprint of a target's weight files: their headers and a sample of every tensor.

    Raises:
        InputError: no weights lie on this machine, or a file is cut.
    """
    folder = _folder(name, revision)
    files = sorted(folder.glob("*.safetensors"))
    files = files or [p for p in sorted(folder.glob("*.bin")) if p.stat().st_size > _SAMPLE]
    if not files:
        raise InputError(f"{folder}: no weights (*.safetensors or *.bin) here.")
    digest = hashlib.sha256()
    for path in files:
        try:
            with path.open("rb") as file:
                header = _header(file) if path.suffix == ".safetensors" else b""
                digest.update(header)
                for start in _places(header, path.stat().st_size):
                    file.seek(start)
                    digest.update(file.read(_SAMPLE))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: cannot be read as weights ({error}).") from error
    return "sha256:" + digest.hexdigest()


def _folder(name: str, revision: str | None) -> Path:
    place = Path(resolve_model(name))
    if place.is_dir():
        return place
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, local_files_only=True))
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: its weights are not on this machine yet.") from error


def _header(file: BinaryIO) -> bytes:
    length = int.from_bytes(file.read(8), "little")
    header = file.read(length) if 0 < length <= _MAX_HEADER else b""
    if not header or len(header) < length:
        raise ValueError("no whole safetensors header")
    return header


def _places(header: bytes, size: int) -> Iterator[int]:
    if not header:
        yield from range(0, size, max(1, size // _FILE_PLACES))
        return
    tensors = json.loads(header)
    for name in sorted(set(tensors) - {"__metadata__"}):
        begin, end = (8 + len(header) + offset for offset in tensors[name]["data_offsets"])
        last = max(begin, end - _SAMPLE)
        yield from sorted({begin + (last - begin) * i // (_PLACES - 1) for i in range(_PLACES)})
