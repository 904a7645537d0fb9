"""A loss or a gradient that is not finite: the step is skipped by all processes, and counted.

A loss that is not finite makes its whole gradient NaN, and the gradient's norm, which all processes
share, tells everybody. DeepSpeed skips such a step itself under ZeRO and in bf16; plain fp32
(stage 0) is guarded here. Nothing is synchronised for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from vtrim.errors import InputError

SHOWN = 8  # samples that an error names


def poisoned(loss: Tensor) -> Tensor:
    """The loss itself where it is finite, to the bit; else NaN, in value and in gradient."""
    return loss * (1 + 0 * loss.detach())


def guard_plain_optimizer(engine: Any) -> None:
    """Makes a stage-0 fp32 engine note its gradient norm and skip an update that is not finite."""
    if engine.bfloat16_enabled() or engine.zero_optimization():
        return
    optimizer = engine.optimizer
    update = optimizer.step
    limit = engine.gradient_clipping() or math.inf

    def step(closure: Any = None) -> Any:
        # the gradients are already the mean over all processes
        norm = float(nn.utils.clip_grad_norm_(engine.module.parameters(), limit))
        optimizer._global_grad_norm = norm
        optimizer.overflow = not math.isfinite(norm)
        return None if optimizer.overflow else update(closure)

    engine.clip_fp32_gradients = lambda: None
    optimizer.step = step


def bad_samples(micro: Sequence[list[list[int]]], losses: Sequence[Tensor]) -> list[int]:
    """Training samples of the micro-batches, of any process, whose loss is not finite.

    Only the gradient may have been at fault: then all samples of the step. All processes call.
    """
    found = [
        [index for documents in bins for index in documents]
        for bins, loss in zip(micro, losses, strict=True)
        if not math.isfinite(loss)
    ]
    own = [index for bins in micro for documents in bins for index in documents]
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, ([i for bins in found for i in bins], own))
    guilty = sorted({i for bad, _ in everyone for i in bad})
    return guilty or sorted({i for _, all_ in everyone for i in all_})


def refuse_more(step: int, bad_steps: int, limit: int, samples: list[int]) -> None:
    """Stops a run that has skipped more steps than it may.

    Raises:
        InputError: names the step, its samples and the remedy.
    """
    if bad_steps <= limit:
        return
    shown = ", ".join(map(str, samples[:SHOWN])) + (", ..." if len(samples) > SHOWN else "")
    raise InputError(
        f"step {step}: the loss or its gradient is not finite (training samples {shown}, counted "
        f"from 0); {bad_steps} step(s) skipped, --max-bad-steps {limit} allows no more. The last "
        "checkpoint is whole. Lower --lr and train anew with --restart, mend those samples, or "
        "give a larger --max-bad-steps and go on."
    )


def refuse_applied(step: int, loss: float, norm: float) -> None:
    """Stops a run whose weights took a step that is not finite; all processes know both numbers.

    Raises:
        InputError: names the step and the remedy.
    """
    if math.isfinite(loss) and math.isfinite(norm):
        return
    raise InputError(
        f"step {step}: loss {loss:g}, gradient norm {norm:g}, and the step was not skipped: the "
        "weights are spoilt. The last checkpoint is whole; lower --lr and train anew with "
        "--restart, or mend the samples and run the same line again."
    )
