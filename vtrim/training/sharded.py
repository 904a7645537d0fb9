"""The target's blocks spread over the processes: DeepSpeed's ZeRO-3, for inference.

Each process holds 1/N of every block and gathers one block at a time. Embedding, final norm and
head stay whole on each: every micro-batch reads them in chunks of rows, which partitions could not
serve, and in large targets they are a few per cent of the weights.

A gather needs all processes, so all must run the target equally often, also those whose states are
cached: they forward one token along with the others (``InStep``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from vtrim.models.target import Target
from vtrim.training.batch import TrainSample
from vtrim.training.states import SampleStates, StateSource


class InStep:
    """Forwards of a spread target, which all processes make together.

    Before each forward the processes ask each other whether anybody needs one; those that do not
    forward one token along.
    """

    def __init__(self, target: Target, engine: Any) -> None:
        self.target = target
        self.engine = engine  # it owns the hooks that gather the blocks
        self._along = False
        target.decoder.register_forward_pre_hook(self._before, prepend=True)

    def _before(self, _module: nn.Module, _args: tuple[Any, ...]) -> None:
        if not self._along:
            self._anybody(True)

    def _anybody(self, wants: bool) -> bool:
        flag = torch.tensor(int(wants), device=self.target.device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag)

    @torch.no_grad()
    def catch_up(self) -> None:
        """Forwards along until no process needs the target any more; all processes call."""
        self._along = True
        while self._anybody(False):
            self.target.forward(torch.zeros((1, 1), dtype=torch.int64, device=self.target.device))
        self._along = False

    def source(self, inner: StateSource) -> StateSource:
        """``inner`` as a source that every process calls equally often."""
        return _InStepStates(inner, self)


class _InStepStates:
    def __init__(self, inner: StateSource, steps: InStep) -> None:
        self.inner = inner
        self.steps = steps

    def states(
        self, samples: Sequence[TrainSample], *, heldout: bool = False
    ) -> list[SampleStates]:
        """See ``StateSource``."""
        found = self.inner.states(samples, heldout=heldout)
        self.steps.catch_up()
        return found


def spread_target(target: Target, note: Callable[[str], None]) -> InStep:
    """Spreads a target that lies in CPU memory over the processes, each part on its own device."""
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    device = get_accelerator().current_device_name()
    _keep_whole(target, device)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
        "bf16": {"enabled": target.dtype == torch.bfloat16},
        "steps_per_print": 10**9,
    }
    # first the parameters, one by one: the whole model might not fit on a device
    deepspeed.zero.Init(module=target.decoder, config_dict_or_path=config)
    engine, *_ = deepspeed.initialize(model=target.decoder, config=config)
    blocks: Any = target.layers.parameters()
    held = sum(p.ds_tensor.nbytes for p in blocks)
    note(
        f"the target's blocks are spread over {dist.get_world_size()} process(es), "
        f"{held / 1024**2:,.1f} MiB on each"
    )
    return InStep(target, engine)


def _keep_whole(target: Target, device: str) -> None:
    """Moves all but the blocks to ``device``, as buffers, which ZeRO leaves alone."""
    inside = {id(module) for module in target.layers.modules()}
    tied = target.head_weight is target.embedding
    for module in target.model.modules():
        if id(module) in inside:
            continue
        module._apply(lambda tensor: tensor.to(device), recurse=False)
        for name, parameter in list(module.named_parameters(recurse=False)):
            delattr(module, name)
            module.register_buffer(name, parameter.detach(), persistent=False)
    if tied:
        target.model.get_output_embeddings().weight = target.embedding
