"""Where a run goes on: the newest whole checkpoint, also with another number of processes.

ZeRO's files hold one process's share each. DeepSpeed's universal checkpoint puts the shares
together by parameter, from which any number of processes takes its own; it lives beside the
checkpoint under a hidden name while it is loaded.
"""

from __future__ import annotations

import contextlib
import io
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from vtrim.errors import MismatchError
from vtrim.training.checkpoint import (
    UNIVERSAL,
    barrier,
    drop_newer,
    from_first,
    is_rank_zero,
    newest_whole,
    remove_tree,
)
from vtrim.training.ds_sections import ADAM, optimizer_kind


@dataclass(frozen=True)
class ResumePoint:
    """The checkpoint to load, None to begin; its listing; what is wrong with newer ones."""

    checkpoint: Path | None
    listing: dict[str, Any]
    problems: list[str]

    def load(self, engine: Any, note: Callable[[str], None]) -> None:
        """Puts weights and optimiser into the engine; says what was not whole. All call."""
        if self.checkpoint is None:
            return
        for problem in self.problems:
            note(f"not whole, so the checkpoint before it is used: {problem}")
        folder = self.checkpoint.parent
        if not engine.load_universal_checkpoint():
            engine.load_checkpoint(str(folder), tag=self.checkpoint.name)
        else:
            note(f"{self.listing['processes']} processes saved it, {dist.get_world_size()} go on")
            if is_rank_zero():
                _to_universal(self.checkpoint, folder / UNIVERSAL)
            barrier()
            engine.load_checkpoint(str(folder), tag=UNIVERSAL)
            barrier()
            if is_rank_zero():
                remove_tree(folder / UNIVERSAL)
        if is_rank_zero():
            drop_newer(folder, self.checkpoint)

    def config(self, ds_config: dict[str, Any], optimizer: str) -> dict[str, Any]:
        """The DeepSpeed config with which the checkpoint can be loaded.

        Raises:
            MismatchError: another number of processes cannot take over this optimizer's state.
        """
        now = dist.get_world_size()
        saved_by = self.listing.get("processes", now)
        if saved_by == now or not _is_partitioned(ds_config):
            return ds_config
        if optimizer == "muon" or optimizer_kind(ds_config) not in ("", *ADAM):
            raise MismatchError(
                f"{self.checkpoint}: saved by {saved_by} processes, {now} now: DeepSpeed carries "
                "over only Adam's moments to another number of processes. Go on with --num-gpus "
                f"{saved_by}, or train anew with --restart."
            )
        return {**ds_config, "checkpoint": {"load_universal": True}}


def find_resume_point(folder: Path) -> ResumePoint:
    """The newest whole checkpoint in ``folder``. All processes call.

    Raises:
        InputError: there are checkpoints and none is whole.
    """
    return from_first(lambda: ResumePoint(*newest_whole(folder)))


def _is_partitioned(ds_config: dict[str, Any]) -> bool:
    """Whether each process saves a share of its own; without ZeRO the first one saves all."""
    return bool(ds_config["zero_optimization"]["stage"] > 0)


def _to_universal(checkpoint: Path, into: Path) -> None:
    from deepspeed.checkpoint.ds_to_universal import main

    remove_tree(into)
    arguments = Namespace(
        input_folder=str(checkpoint),
        output_folder=str(into),
        num_extract_workers=1,
        num_merge_workers=1,
        keep_temp_folder=False,
        strict=True,
        inject_missing_state=True,
    )
    with contextlib.redirect_stdout(io.StringIO()):  # it narrates
        main(arguments)
