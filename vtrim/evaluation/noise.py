"""How steady the machine was: the same work timed again and again while something is measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

_SIZE = 2048  # a weight matrix of 16 MB, read once: decoding's own kind of work
_TIMES = 3  # at each look, the fastest counts
_WARM_UP = 3


@dataclass
class FixedKernel:
    """A matrix-vector product that never changes, timed between the prompts.

    seconds: of each look [s].
    """

    device: str
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Makes the matrix, and reads it a few times for nothing."""
        generator = torch.Generator().manual_seed(0)
        self._matrix = torch.randn(_SIZE, _SIZE, generator=generator).to(self.device)
        self._vector = torch.randn(_SIZE, generator=generator).to(self.device)
        for _ in range(_WARM_UP):
            self._once()

    def look(self) -> None:
        """Times the product once more."""
        self.seconds.append(min(self._once() for _ in range(_TIMES)))

    @torch.inference_mode()
    def _once(self) -> float:
        self._wait()
        start = time.perf_counter()
        self._matrix @ self._vector
        self._wait()
        return time.perf_counter() - start

    def _wait(self) -> None:
        if self._matrix.device.type == "cuda":
            torch.cuda.synchronize(self._matrix.device)


def noise(plain_speeds: Sequence[float | None], kernel: Sequence[float]) -> dict[str, Any]:
    """How far the same work lay apart.

    plain_spread: of plain decoding's speed over the repeats, (largest - smallest) / median; None
    of fewer than two. kernel_spread: of the fixed kernel, the middle half of its times over their
    median; kernel_drift: median of its last quarter over that of the first, less 1.
    """
    known = [speed for speed in plain_speeds if speed]
    spread = (max(known) - min(known)) / float(np.median(known)) if len(known) > 1 else None
    times = np.array(kernel, dtype=np.float64)
    if times.size < 2:
        return {"plain_spread": spread, "kernel_looks": int(times.size)}
    low, middle, high = np.quantile(times, (0.25, 0.5, 0.75))
    quarter = max(1, times.size // 4)
    drift = np.median(times[-quarter:]) / np.median(times[:quarter]) - 1
    return {
        "plain_spread": spread,
        "kernel_looks": int(times.size),
        "kernel_seconds": float(middle),
        "kernel_spread": float((high - low) / middle),
        "kernel_drift": float(drift),
    }
