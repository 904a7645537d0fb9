"""The bytes of a file, unpacked where it is gzip or zstd: its first bytes decide, not its name."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import IO, Any, cast

from vtrim.errors import InputError

PARQUET = b"PAR1"
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"  # from the second byte on; pzstd begins with such a frame
_BLOCK = 1 << 18
_PIECE = 1 << 14  # unpacked at a time: of what lies before damage, less than this is lost

_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)

_UNPACK = "unpack it first"
_FOREIGN = {
    b"PK\x03\x04": ("a zip archive", _UNPACK),
    b"BZh": ("packed with bzip2", _UNPACK),
    b"\xfd7zXZ": ("packed with xz", _UNPACK),
    b"ARROW1": ("an Arrow or Feather file", "write it as parquet first"),
    b"\xff\xff\xff\xff": ("a bare Arrow stream", "name the folder that save_to_disk wrote"),
    b"PARE": ("an encrypted parquet file", "decrypt it first"),
    b"Obj\x01": ("an Avro file", "write it as parquet first"),
    b"SQLite format 3": ("a SQLite database", "write its rows as JSONL first"),
    b"version https://git-lfs": ("a Git LFS pointer, not the data", "run `git lfs pull` first"),
}


class CutStreamError(Exception):
    """A packed stream that is cut or damaged."""


def first_bytes(path: Path) -> bytes:
    """The first bytes of a file, enough to tell its kind.

    Raises:
        InputError: it cannot be read, or it is a kind of file that vtrim does not read.
    """
    with open_file(path) as raw:
        head = raw.read(32)
    for magic, (what, remedy) in _FOREIGN.items():
        if head.startswith(magic):
            raise InputError(
                f"{path}: {what}. vtrim reads JSONL, JSON arrays (plain, gzip or zstd) and "
                f"parquet: {remedy}."
            )
    return head


def open_file(path: Path) -> io.BufferedReader:
    """The file, opened to read bytes.

    Raises:
        InputError: it is missing or cannot be read.
    """
    try:
        return io.BufferedReader(path.open("rb", buffering=0), _BLOCK)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file.") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error


def unpacked(raw: io.BufferedReader) -> io.BufferedReader:
    """The stream of a file's content, all gzip members or zstd frames of it.

    Reading it raises CutStreamError where the packed stream is cut or damaged.
    """
    head = raw.read(4)
    raw.seek(0)
    if head.startswith(_GZIP):
        return io.BufferedReader(_Gzip(raw), _BLOCK)
    if head == _ZSTD or (head[1:] == _ZSTD_SKIPPABLE and 0x50 <= head[0] <= 0x5F):
        return io.BufferedReader(_Zstd(raw), _BLOCK)
    return raw


class _Gzip(io.RawIOBase):
    """A gzip stream whose damage is told in one way."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._stream = gzip.GzipFile(fileobj=raw)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        try:
            data = self._stream.read1(len(view))
        except _DAMAGED as error:
            raise CutStreamError(f"the gzip stream is cut or damaged: {error}") from error
        view[: len(data)] = data
        return len(data)


class _Zstd(io.RawIOBase):
    """A zstd stream; unlike the package ``zstandard``, Arrow notices the end of a cut frame."""

    def __init__(self, raw: IO[bytes]) -> None:
        import pyarrow as pa

        self._stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return cast(int, self._stream.readinto(memoryview(buffer)[:_PIECE]))
        except OSError as error:
            raise CutStreamError(f"the zstd stream is cut or damaged: {error}") from error
