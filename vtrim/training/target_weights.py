"""Which weights a target has, told from its files."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from vtrim.artifacts import fingerprint_bytes, fingerprint_file, fingerprint_json, write_json
from vtrim.errors import InputError
from vtrim.models.hub import resolve_model
from vtrim.models.smollm2 import cache_folder

REMEMBERED = 16 << 20
"""Files from this size [bytes] on are read once: to hash one takes longer than a tick of the clock
that dates it, so a change meanwhile shows."""
_NO_WEIGHTS = 512  # a *.bin file up to this size [bytes] holds none


def weights_fingerprint(name: str, *, revision: str | None = None) -> str:
    """Fingerprint of a target's weight files, every byte of them.

    That of a large file is remembered in the user's cache until its size or times change.

    Raises:
        InputError: no weights lie on this machine, or they cannot be read.
    """
    folder = _folder(name, revision)
    files = sorted(folder.glob("*.safetensors"))
    files = files or [p for p in sorted(folder.glob("*.bin")) if p.stat().st_size > _NO_WEIGHTS]
    if not files:
        raise InputError(f"{folder}: no weights (*.safetensors or *.bin) here.")
    try:
        return fingerprint_json([_fingerprint(path.resolve()) for path in files])
    except OSError as error:
        raise InputError(f"{folder}: the weights cannot be read ({error}).") from error


def _folder(name: str, revision: str | None) -> Path:
    place = Path(resolve_model(name))
    if place.is_dir():
        return place
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, local_files_only=True))
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: its weights are not on this machine yet.") from error


def _fingerprint(path: Path) -> str:
    status = path.stat()
    if status.st_size < REMEMBERED:
        return fingerprint_file(path)
    state = [str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    note = cache_folder() / "weights" / fingerprint_bytes(str(path).encode())[7:]
    with suppress(OSError, ValueError):
        *known, fingerprint = json.loads(note.read_text(encoding="utf-8"))
        if known == state and isinstance(fingerprint, str):
            return fingerprint
    fingerprint = fingerprint_file(path)
    with suppress(InputError):  # a cache that cannot be written costs time only
        write_json(note, [*state, fingerprint])
    return fingerprint
