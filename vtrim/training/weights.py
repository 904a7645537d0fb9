"""The best weights so far, one file for each step that was the best; the checkpoint names which."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vtrim.artifacts import atomic_path
from vtrim.errors import InputError
from vtrim.models.draft import Eagle3Draft
from vtrim.training.checkpoint import is_rank_zero


class BestWeights:
    """Saves and restores a draft's weights by step, in the dtype they are trained in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _file(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}.safetensors"

    def save(self, draft: Eagle3Draft, step: int, zero_stage: int) -> None:
        """Writes the weights atomically; all processes call (ZeRO-3 gathers them first)."""
        from safetensors.torch import save

        with _whole(draft, zero_stage):
            if is_rank_zero():
                tensors = {n: t.detach().cpu().contiguous() for n, t in draft.state_dict().items()}
                with atomic_path(self._file(step)) as temporary:
                    temporary.write_bytes(save(tensors))

    def load(self, draft: Eagle3Draft, step: int) -> None:
        """Puts the weights of ``step`` into ``draft``.

        Raises:
            InputError: they are not there, or not whole.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self._file(step)
        if not path.exists():
            raise InputError(f"{path}: no such file; --restart trains anew.")
        try:
            draft.load_state_dict(load_file(path))
        except SafetensorError as error:
            raise InputError(f"{path}: not whole ({error}); --restart trains anew.") from error

    def problem(self, step: int) -> str | None:
        """Why the weights of ``step`` cannot be opened; None where they can."""
        from safetensors import SafetensorError, safe_open

        path = self._file(step)
        try:
            with safe_open(path, framework="pt"):
                return None
        except (OSError, SafetensorError) as error:
            return f"{path} cannot be opened ({error})"

    def prune(self, keep: Collection[int]) -> None:
        """Deletes all files but those of the steps in ``keep``."""
        if not self.folder.exists():
            return
        kept = {self._file(step).name for step in keep}
        for path in self.folder.iterdir():
            if path.name not in kept:
                path.unlink()


def plain_copy(draft: Eagle3Draft, zero_stage: int) -> Eagle3Draft:
    """The draft outside the engine, for decoding; all processes call.

    It shares the weights' memory; under ZeRO-3 it owns a whole copy.
    """
    with torch.device("meta"):
        copy = Eagle3Draft(draft.shape, draft.vocab_ids)
    with _whole(draft, zero_stage):
        found = draft.state_dict()
        tensors: dict[str, Tensor] = {
            name: t.detach().clone() if zero_stage == 3 else t.detach() for name, t in found.items()
        }
    copy.load_state_dict(tensors, assign=True)
    return copy


def _whole(draft: Eagle3Draft, zero_stage: int) -> Any:
    if zero_stage < 3:
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters(list(draft.parameters()), modifier_rank=None)
