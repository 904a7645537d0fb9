"""Folders that ``datasets`` wrote with ``save_to_disk``: one data set, or one for each split."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vtrim.errors import InputError

_STATE = "state.json"
SPLITS = "dataset_dict.json"
_DATA_SUFFIXES = (".parquet", ".jsonl", ".json", ".gz", ".zst")


def is_saved(folder: Path) -> bool:
    """Whether the folder holds a saved data set, or one for each split."""
    return (folder / _STATE).is_file() or (folder / SPLITS).is_file()


def saved_folder(folder: Path, split: str | None) -> Path:
    """The folder of the one data set that is meant.

    Raises:
        InputError: the folder holds none, or ``split`` does not pick one.
    """
    if (folder / SPLITS).is_file():
        return folder / _picked(folder, split)
    if not (folder / _STATE).is_file():
        raise InputError(
            f"{folder}: a folder, and not one that save_to_disk of `datasets` wrote "
            f"(no {_STATE}). Name its files instead, e.g. '{folder / _pattern(folder)}'."
        )
    own = _json(folder / _STATE).get("_split")
    if split is not None and own not in (None, split):
        raise InputError(f"{folder}: holds the split {own!r}, not --split {split}.")
    return folder


def saved_files(folder: Path) -> list[Path]:
    """The Arrow files of a saved data set, in order.

    Raises:
        InputError: its list of files cannot be read, or one is missing.
    """
    state = _json(folder / _STATE)
    try:
        files = [folder / str(one["filename"]) for one in state["_data_files"]]
    except (KeyError, TypeError) as error:
        raise InputError(f"{folder / _STATE}: names no data files.") from error
    for file in files:
        if not file.is_file():
            raise InputError(f"{file}: no such file, but {folder / _STATE} names it.")
    return files


def _picked(folder: Path, split: str | None) -> str:
    splits = _json(folder / SPLITS).get("splits")
    names = [str(one) for one in splits] if isinstance(splits, list) else []
    if split is None and len(names) == 1:
        return names[0]
    if split not in names or split is None:
        asked = "give one with --split" if split is None else f"there is no split {split!r}"
        raise InputError(f"{folder}: {asked}; the splits are {', '.join(names) or 'none'}.")
    return split


def _pattern(folder: Path) -> str:
    """A glob for the data files of a folder."""
    found = sorted({file.suffix for file in folder.iterdir() if file.suffix in _DATA_SUFFIXES})
    return f"*{found[0]}" if found else "*.jsonl"


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; the saved data set is not whole.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read ({error}).") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: holds no JSON object.")
    return value
