"""CUDA graphs of what a forward does between two attentions.

A decoding step of a small model waits for the host: some 20 kernels a block, each launched from
Python. Between one attention and the next all shapes depend on [B, T] only, so that stretch is one
graph a block; attention itself reads a cache that grows, and stays outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Step = Callable[..., tuple[Tensor, ...]]
"""(index of the block, x, context or None, *rest) -> tensors, the first of them the next x."""
Capture = Callable[
    [Callable[[], tuple[Tensor, ...]]], tuple[Callable[[], None], tuple[Tensor, ...]]
]
"""A function that reads and writes fixed addresses -> its replay and the tensors it writes."""

MAX_ROWS = 64  # beyond, a forward no longer waits for the host
MAX_SIZES = 32  # sizes [B, T] that are kept; later ones run without graphs
SIGHTS = 2  # a size is recorded when it comes this often: what comes once is not worth it


class CudaCapture:
    """Records functions as CUDA graphs that are replayed in the order of their recording."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._pool: Any = (
            None  # one for all: hundreds of graphs with their own would take gigabytes
        )

    def __call__(
        self, run: Callable[[], tuple[Tensor, ...]]
    ) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
        """Records ``run`` after two runs on a side stream, in which libraries set themselves up."""
        with torch.cuda.device(self.device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    run()
            torch.cuda.current_stream().wait_stream(side)
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                outputs = run()
        return graph.replay, outputs


class Graphs:
    """A step whose repeated sizes are replayed; results hold until the same size comes again."""

    def __init__(self, step: Step, capture: Capture) -> None:
        self._step = step
        self._capture = capture
        self._sights: Counter[tuple[int, ...]] = Counter()
        self._recorded: dict[tuple[int, ...], dict[int, _Recorded]] = {}

    def __call__(self, index: int, x: Tensor, context: Tensor | None, *rest: Tensor) -> Any:
        """The step's tensors. x: [B, T, d]; steps of one size come in the order of the blocks."""
        size = (*x.shape, *(length for tensor in rest for length in tensor.shape))
        if x.shape[0] * x.shape[1] > MAX_ROWS:
            return self._step(index, x, context, *rest)
        if size not in self._recorded:
            self._sights[size] += index == 0
            if self._sights[size] < SIGHTS or len(self._recorded) == MAX_SIZES:
                return self._step(index, x, context, *rest)
        steps = self._recorded.setdefault(size, {})
        if index not in steps:
            steps[index] = self._record(index, steps.get(index - 1), x, context, rest)
        return steps[index].run(x, context, rest)

    @torch.inference_mode(False)  # tensors made under it could not be written outside of it
    @torch.no_grad()
    def _record(
        self,
        index: int,
        before: _Recorded | None,
        x: Tensor,
        context: Tensor | None,
        rest: tuple[Tensor, ...],
    ) -> _Recorded:
        """One block's graph; it reads x and the positions where the block before has them."""
        inputs = _Inputs(
            x.clone() if before is None else before.outputs[0],
            None if context is None else context.clone(),
            tuple(t.clone() for t in rest) if before is None else before.inputs.rest,
        )
        replay, outputs = self._capture(
            lambda: self._step(index, inputs.x, inputs.context, *inputs.rest)
        )
        return _Recorded(inputs, replay, outputs)


class _Inputs:
    def __init__(self, x: Tensor, context: Tensor | None, rest: tuple[Tensor, ...]) -> None:
        self.x, self.context, self.rest = x, context, rest


class _Recorded:
    """A graph with the tensors that it reads and writes."""

    def __init__(
        self, inputs: _Inputs, replay: Callable[[], None], outputs: tuple[Tensor, ...]
    ) -> None:
        self.inputs, self.replay, self.outputs = inputs, replay, outputs

    def run(
        self, x: Tensor, context: Tensor | None, rest: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Puts in place what is not there yet, and replays."""
        own = self.inputs
        if x is not own.x:
            own.x.copy_(x)
        if own.context is not None and context is not None:
            own.context.copy_(context)
        if own.context is None:  # the first block: positions hold for all
            for mine, given in zip(own.rest, rest, strict=True):
                mine.copy_(given)
        self.replay()
        return self.outputs
