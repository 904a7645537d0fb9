"""Wall time of the phases of decoding."""

from __future__ import annotations

import time

import torch


class Stopwatch:
    """Adds the time since the last lap to a phase; waits for the device so that laps are true."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device if device.type == "cuda" else None
        self.seconds: dict[str, float] = {}
        self._last = self._now()

    def lap(self, phase: str) -> None:
        """Ends a phase: the time since the last lap [s] is its own."""
        now = self._now()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        self._last = now

    def skip(self) -> None:
        """Forgets the time since the last lap: measurement, not decoding."""
        self._last = self._now()

    def _now(self) -> float:
        if self._cuda is not None:
            torch.cuda.synchronize(self._cuda)
        return time.perf_counter()
