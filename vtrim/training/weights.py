"""The best weights so far, kept beside the checkpoints in fp32."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from vtrim.artifacts import atomic_path
from vtrim.errors import InputError
from vtrim.models.draft import Eagle3Draft
from vtrim.training.checkpoint import is_rank_zero


class BestWeights:
    """Saves and restores a draft's weights; the file names the step they come from."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, draft: Eagle3Draft, step: int, zero_stage: int) -> None:
        """Writes the weights atomically; all processes call (ZeRO-3 gathers them first)."""
        from safetensors.torch import save

        with _whole(draft, zero_stage):
            if is_rank_zero():
                tensors = {n: t.detach().cpu().contiguous() for n, t in draft.state_dict().items()}
                with atomic_path(self.path) as temporary:
                    temporary.write_bytes(save(tensors, metadata={"step": str(step)}))

    def load(self, draft: Eagle3Draft) -> int:
        """Puts the weights into ``draft`` and returns their step.

        Raises:
            InputError: no weights were kept.
        """
        from safetensors import safe_open

        if not self.path.exists():
            raise InputError(f"{self.path}: no such file; the run kept no weights.")
        with safe_open(self.path, framework="pt") as file:
            draft.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
            return int(file.metadata()["step"])


def _whole(draft: Eagle3Draft, zero_stage: int) -> Any:
    if zero_stage < 3:
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters(list(draft.parameters()), modifier_rank=None)
