"""Target states on disk, written once and read ever after; any number of processes may share it.

States depend on the target, its auxiliary layers, the dtype, and a sample's ids and mask; on
nothing else. So samples are known by their content, and a store serves any vocabulary, unroll
length, mask alignment, order, subset and number of processes.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from vtrim import __version__
from vtrim.artifacts import check_match, fingerprint_json, read_object, write_json
from vtrim.errors import InputError, OwnError
from vtrim.training.states import SampleStates
from vtrim.training.store_format import DTYPES, Shard, ShardBuffer, read_shard

FORMAT = 1
SHARD_BYTES = 64 << 20
"""Size of a shard. A process holds two in memory: one that fills, one that is being written."""
_SHARDS = "shard-*.safetensors"
_STALE_S = 600  # a shard is written in seconds; what is older was left by a killed process


class FeatureStore:
    """A folder of states; ``identity`` is what they depend on, beside the samples.

    identity: ``target_config`` and ``target_weights`` fingerprints, ``aux_layer_ids``, ``dtype``
    (bf16 or fp32).
    """

    def __init__(
        self,
        folder: Path,
        identity: dict[str, Any],
        told: dict[str, Any] | None = None,
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        """``told`` stands in the manifest for people and is not compared.

        Raises:
            MismatchError: the folder holds states of another target, other layers or dtype.
            InputError: a shard is cut, or the folder cannot be written.
        """
        self.folder = folder
        self.target = str((told or {}).get("target", "the target"))
        self.shard_bytes = shard_bytes
        self._own = {"format": FORMAT, **identity}
        self._fingerprint = fingerprint_json(self._own)
        _open_manifest(folder, self._own, told or {})
        self._dtype = DTYPES[identity["dtype"]]
        self._shards: dict[str, Shard] = {}
        for path in sorted(folder.glob(_SHARDS)):
            self._register(read_shard(path, self._fingerprint))
        self._buffer = ShardBuffer(self._dtype)
        self._writer = ThreadPoolExecutor(1, "vtrim-store")
        self._writing: tuple[Future[None], ShardBuffer, Path] | None = None
        self._name = secrets.token_hex(4)  # processes and runs write shards of their own
        self._number = 0

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and (key in self._shards or self._in_memory(key) is not None)

    def get(self, key: str) -> SampleStates | None:
        """The states of a sample on the CPU, None where they are not known."""
        shard = self._shards.get(key)
        return self._in_memory(key) if shard is None else shard.read(key)

    def put(self, key: str, states: SampleStates) -> None:
        """Adds a sample; a full shard is written in the background.

        Raises:
            InputError: the shard before could not be written.
        """
        if key in self:
            return
        self._buffer.add(key, states)
        if self._buffer.nbytes >= self.shard_bytes:
            self._write()

    def close(self) -> None:
        """Writes what is left, and waits for it.

        Raises:
            InputError: it could not be written.
        """
        if self._buffer.kept:
            self._write()
        self._finish()
        self._writer.shutdown()

    def verify(self, keys: Iterable[str], part: int = 0, parts: int = 1) -> int:
        """Reads and checks one of ``parts`` of the shards that hold ``keys``; bytes that were read.

        Raises:
            InputError: one was edited or damaged since it was written.
        """
        used = {shard.path: shard for key in keys if (shard := self._shards.get(key)) is not None}
        own = [used[path] for path in sorted(used)][part::parts]
        for shard in own:
            shard.verify()
        return sum(shard.path.stat().st_size for shard in own)

    def _in_memory(self, key: str) -> SampleStates | None:
        found = self._buffer.kept.get(key)
        if found is None and self._writing is not None:
            found = self._writing[1].kept.get(key)
        return found

    def _register(self, shard: Shard) -> None:
        self._shards.update(dict.fromkeys(shard.samples, shard))

    def _write(self) -> None:
        self._finish()
        path = self.folder / f"shard-{self._name}-{self._number:05d}.safetensors"
        future = self._writer.submit(self._buffer.write, path, self._fingerprint)
        self._writing = future, self._buffer, path
        self._buffer = ShardBuffer(self._dtype)
        self._number += 1

    def _finish(self) -> None:
        """Waits for the shard in writing, if there is one."""
        if self._writing is None:
            return
        future, _, path = self._writing
        try:
            future.result()
        except InputError as error:
            whole = "What was cached before is whole: run the same line again to go on from there."
            raise OwnError(f"{error} {whole}") from error
        self._register(read_shard(path, self._fingerprint))
        self._writing = None


def _open_manifest(folder: Path, own: dict[str, Any], told: dict[str, Any]) -> None:
    path = folder / "manifest.json"
    if not path.exists():
        if any(folder.glob(_SHARDS)):
            raise InputError(f"{path}: no such file, but shards are there. Choose another folder.")
        write_json(path, {"vtrim": __version__, **own, **told})
    check_manifest(path, own)
    for left in folder.glob(f".{_SHARDS}.*.tmp"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_S:
                left.unlink()


def check_manifest(path: Path, own: dict[str, Any]) -> None:
    """Refuses a store whose states depend on something else than ``own`` says.

    Raises:
        MismatchError: names the first that differs.
    """
    there = read_object(path)
    for name, value in own.items():
        check_match(
            f"{name.replace('_', ' ')} of the cached target states",
            value,
            there.get(name),
            str(path),
            "Give another folder to --cache-features, or delete this one.",
        )


def free_bytes(folder: Path) -> int:
    """Free space where the folder is, or will be [bytes]."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    disk = os.statvfs(there)
    return disk.f_bavail * disk.f_frsize
