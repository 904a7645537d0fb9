"""Checkpoints: written under a hidden name, synced, renamed; the newest whole one is resumed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch.distributed as dist

from vtrim.errors import InputError

PREFIX = "step-"


def barrier() -> None:
    """Waits for all processes, where there are several."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.barrier()


def is_rank_zero() -> bool:
    """Whether this process writes the files that exist once."""
    return not dist.is_initialized() or dist.get_rank() == 0


def save_checkpoint(engine: Any, folder: Path, step: int, state: dict[str, Any], keep: int) -> None:
    """Saves engine and ``state`` as ``step-N``; only the newest ``keep`` stay."""
    hidden, tag = folder / ".writing", f"{PREFIX}{step:08d}"
    if is_rank_zero():
        shutil.rmtree(hidden, ignore_errors=True)
        hidden.mkdir(parents=True)
    barrier()
    try:
        engine.save_checkpoint(str(hidden), tag=tag, client_state=state, save_latest=False)
    except (OSError, RuntimeError) as error:  # torch says "unexpected pos" when the disk is full
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{hidden / tag}: the checkpoint cannot be written ({reason}); the one before it is "
            "whole. Free some space and run the same line again."
        ) from error
    barrier()
    if is_rank_zero():
        for file in (p for p in (hidden / tag).rglob("*") if p.is_file()):
            with file.open("rb+") as handle:
                os.fsync(handle.fileno())
        final = folder / tag
        shutil.rmtree(final, ignore_errors=True)
        (hidden / tag).replace(final)
        shutil.rmtree(hidden)
        for old in list_checkpoints(folder)[keep:]:
            shutil.rmtree(old)
    barrier()


def list_checkpoints(folder: Path) -> list[Path]:
    """Whole checkpoints, newest first."""
    if not folder.exists():
        return []
    return sorted((p for p in folder.iterdir() if p.name.startswith(PREFIX)), reverse=True)


def load_checkpoint(engine: Any, checkpoint: Path) -> dict[str, Any]:
    """Restores weights, optimiser state and returns the saved ``state``."""
    _, state = engine.load_checkpoint(str(checkpoint.parent), tag=checkpoint.name)
    values: dict[str, Any] = state
    return values
