"""A small npz file whose bytes depend on its content alone."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from vtrim.errors import InputError

FORMAT = "vtrim-coverage-2"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the zip format's own zero: no clock reaches the file


def pack(arrays: Mapping[str, npt.NDArray[np.int64]], meta: Mapping[str, Any]) -> bytes:
    """An uncompressed npz of ``arrays`` and ``meta`` (JSON in a string array).

    Compression would make the bytes depend on the machine's zlib.
    """
    text = json.dumps({"format": FORMAT, **meta}, sort_keys=True)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in [*sorted(arrays.items()), ("meta", np.array(text))]:
            member = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            member.create_system = 3
            body = io.BytesIO()
            npy.write_array(body, array, allow_pickle=False)
            archive.writestr(member, body.getvalue())
    return buffer.getvalue()


def unpack(path: Path) -> tuple[dict[str, npt.NDArray[np.int64]], dict[str, Any]]:
    """The int64 arrays and the meta data of a file written from ``pack``.

    Raises:
        InputError: the file is missing, incomplete, of another version or something else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {
                name.removesuffix(".npy"): npy.read_array(
                    io.BytesIO(archive.read(name)), allow_pickle=False
                )
                for name in archive.namelist()
            }
        meta = json.loads(str(members.pop("meta").item()))
        if meta["format"] != FORMAT:
            raise InputError(
                f"{path}: written by another version of vtrim (format {meta['format']}; this one "
                f"reads {FORMAT}). Run `vtrim coverage` again."
            )
        arrays = {
            name: np.asarray(array).astype(np.int64, casting="safe")
            for name, array in members.items()
        }
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file. Run `vtrim coverage` first.") from error
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: incomplete or not a vtrim coverage ({error}). Run `vtrim coverage` again."
        ) from error
    return arrays, meta
