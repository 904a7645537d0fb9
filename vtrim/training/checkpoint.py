"""Checkpoints: written under a hidden name, synced, listed, renamed; the newest whole one counts.

``vtrim.json``, written last, lists every file with its size and checksum, and carries the run's
state: a checkpoint that was cut or edited afterwards is found out before anything is loaded.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist

from vtrim import __version__
from vtrim.artifacts import (
    fingerprint_file,
    fingerprint_json,
    read_object,
    sync_folder,
    write_json,
)
from vtrim.errors import InputError, OwnError, VtrimError

PREFIX = "step-"
LISTING = "vtrim.json"
UNIVERSAL = ".universal"
_WRITING, _REMOVING = ".writing", ".removing"
T = TypeVar("T")
_TORCH_WRITER = ("inline_container", "PytorchStreamWriter", "iostream")


def _in_group() -> bool:
    """Whether there are other processes."""
    return dist.is_initialized() and dist.get_world_size() > 1


def barrier() -> None:
    """Waits for all processes, where there are several."""
    if _in_group():
        dist.barrier()


def is_rank_zero() -> bool:
    """Whether this process writes the files that exist once."""
    return not dist.is_initialized() or dist.get_rank() == 0


def broadcast(value: Any) -> Any:
    """The first process's value, in all."""
    if not _in_group():
        return value
    box = [value]
    dist.broadcast_object_list(box)
    return box[0]


def from_first(make: Callable[[], T]) -> T:
    """What ``make`` gives in the first process, in all; an error of the user's is raised in all."""
    made: tuple[list[T], VtrimError | None] = ([], None)
    if is_rank_zero():
        try:
            made = ([make()], None)
        except VtrimError as error:
            made = ([], error)
    found, problem = broadcast(made)
    if problem is not None:
        raise problem
    value: T = found[0]
    return value


def save_checkpoint(
    engine: Any, folder: Path, state: dict[str, Any], keep: int, about: dict[str, Any]
) -> None:
    """Saves engine and ``state`` as ``step-N``; only the newest ``keep`` stay. All processes call.

    about: what a reader must know to load it, e.g. the number of processes.

    Raises:
        OwnError: this process's part cannot be written; ``watch`` ends the others, which may wait
            in DeepSpeed's own barriers, so nothing can be agreed on with them.
        InputError: the whole cannot be written. The checkpoint before it is whole either way.
    """
    hidden, tag = folder / _WRITING, f"{PREFIX}{state['step']:08d}"
    if is_rank_zero():
        _tidy(folder, keep)
    barrier()
    problem = _write_part(engine, hidden, tag)
    if problem is not None:
        if not _in_group():
            shutil.rmtree(hidden, ignore_errors=True)  # gives its space back
        raise OwnError(_refusal(folder / tag, f"on {socket.gethostname()}: {problem}"))
    written = _written_by_all(hidden / tag)
    if is_rank_zero():
        problem = _finish(hidden / tag, folder / tag, {**about, "state": state}, written)
        if problem is None:
            _tidy(folder, keep)
    problem = broadcast(problem)
    if problem is not None:
        if is_rank_zero():
            shutil.rmtree(hidden, ignore_errors=True)
        raise InputError(_refusal(folder / tag, problem))


def _write_part(engine: Any, folder: Path, tag: str) -> str | None:
    """DeepSpeed's save; what went wrong with this process's files, if anything."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        engine.save_checkpoint(str(folder), tag=tag, client_state={}, save_latest=False)
    except OSError as error:
        return error.strerror or str(error)
    except RuntimeError as error:  # "unexpected pos 592256 vs 592144", or from the group: not ours
        if not any(word in str(error) for word in _TORCH_WRITER):
            raise
        return f"a file was cut short: is the disk full? {str(error).splitlines()[0]}"
    return None


def _refusal(checkpoint: Path, problem: str) -> str:
    return (
        f"{checkpoint}: the checkpoint cannot be written ({problem}); the one before it is whole. "
        "Free some space and run the same line again."
    )


def _written_by_all(folder: Path) -> set[str]:
    """Names of the files that any process sees in ``folder``, its own among them."""
    seen = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    if not _in_group():
        return seen
    everyone: list[set[str]] = [set()] * dist.get_world_size()
    dist.all_gather_object(everyone, seen)
    return set().union(*everyone)


def list_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints by name, newest first."""
    if not folder.exists():
        return []
    return sorted((p for p in folder.iterdir() if p.name.startswith(PREFIX)), reverse=True)


def read_listing(checkpoint: Path) -> dict[str, Any]:
    """The listing of a checkpoint, ``state`` in it, after a check that every file is as written.

    Raises:
        InputError: a file is missing, cut or changed; names it.
    """
    listing = read_object(checkpoint / LISTING)
    seal = listing.pop("fingerprint", None)
    if seal != fingerprint_json(listing):
        raise InputError(f"{checkpoint / LISTING}: changed after it was written.")
    for name, there in listing["files"].items():
        path = checkpoint / name
        if not path.is_file():
            raise InputError(f"{path}: missing.")
        if path.stat().st_size != there["bytes"]:
            raise InputError(
                f"{path}: cut or changed ({path.stat().st_size} bytes, {there['bytes']} written)."
            )
        if fingerprint_file(path) != there["fingerprint"]:
            raise InputError(f"{path}: changed after it was written (its checksum differs).")
    return listing


def newest_whole(folder: Path) -> tuple[Path | None, dict[str, Any], list[str]]:
    """The newest whole checkpoint, its listing, and what is wrong with newer ones.

    Raises:
        InputError: there are checkpoints and none is whole.
    """
    problems: list[str] = []
    for checkpoint in list_checkpoints(folder):
        try:
            return checkpoint, read_listing(checkpoint), problems
        except InputError as error:
            problems.append(str(error).rstrip("."))
    if problems:
        raise InputError(
            f"{folder}: no whole checkpoint ({'; '.join(problems)}). --restart trains anew."
        )
    return None, {}, []


def kept_states(folder: Path) -> list[dict[str, Any]]:
    """The states of the checkpoints whose listing can be read; their files are not looked at."""
    states = []
    for checkpoint in list_checkpoints(folder):
        with suppress(InputError):
            states.append(read_object(checkpoint / LISTING)["state"])
    return states


def drop_newer(folder: Path, kept: Path) -> None:
    """Removes the broken checkpoints that are newer than the one the run goes on from."""
    for checkpoint in list_checkpoints(folder):
        if checkpoint.name > kept.name:
            remove_tree(checkpoint)


def remove_tree(path: Path) -> None:
    """Deletes a folder so that a kill leaves no part of it under its name."""
    if path.exists():
        hidden = path.with_name(f"{_REMOVING}-{path.name}")
        shutil.rmtree(hidden, ignore_errors=True)
        path.replace(hidden)
        shutil.rmtree(hidden)


def _tidy(folder: Path, keep: int) -> None:
    """Removes what a kill left half-written or half-removed, and all but the newest ``keep``."""
    if not folder.exists():
        return
    for path in folder.iterdir():
        if path.name.startswith((_WRITING, _REMOVING, UNIVERSAL)):
            shutil.rmtree(path)
    for old in list_checkpoints(folder)[keep:]:
        remove_tree(old)


def _finish(written: Path, final: Path, listing: dict[str, Any], names: set[str]) -> str | None:
    """Syncs and lists the files and gives the checkpoint its name; what went wrong, if anything.

    names: of the files that all processes wrote.
    """
    absent = [name for name in sorted(names) if not (written / name).is_file()]
    if absent:
        return (
            f"{absent[0]} of another process is not there on {socket.gethostname()}: the run "
            "folder must be on storage that all machines share"
        )
    try:
        files = {}
        for path in sorted(p for p in written.rglob("*") if p.is_file()):
            with path.open("rb+") as handle:
                os.fsync(handle.fileno())
            entry = {"bytes": path.stat().st_size, "fingerprint": fingerprint_file(path)}
            files[str(path.relative_to(written))] = entry
        whole = {"vtrim": __version__, **listing, "files": files}
        write_json(written / LISTING, {**whole, "fingerprint": fingerprint_json(whole)})
        for folder in (written, *(p for p in written.rglob("*") if p.is_dir())):
            sync_folder(folder)
        remove_tree(final)
        written.replace(final)
        sync_folder(final.parent)  # before an older checkpoint goes
        shutil.rmtree(written.parent)  # DeepSpeed leaves a script beside its folder
    except (OSError, InputError) as error:
        return str(error)
    return None
