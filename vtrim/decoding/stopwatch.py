"""Time of the phases of decoding, charged to the sequences that went through them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

Ledger = dict[str, float]
"""Seconds of each phase [s]."""


class Stopwatch:
    """Charges the time since the last lap to a phase, in equal shares to the ledgers given.

    On a GPU a lap is an event in its stream and waits for nothing; ``settle`` waits once.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device if device.type == "cuda" else None
        self._laps: list[tuple[str, Any, Any, Sequence[Ledger]]] = []
        self._last = self._mark()

    def lap(self, phase: str, ledgers: Sequence[Ledger]) -> None:
        """Ends a phase."""
        mark = self._mark()
        self._laps.append((phase, self._last, mark, ledgers))
        self._last = mark

    def skip(self) -> None:
        """Forgets the time since the last lap: measurement, not decoding."""
        self._last = self._mark()

    def settle(self) -> None:
        """Writes all laps so far into their ledgers."""
        if self._cuda is not None:
            torch.cuda.synchronize(self._cuda)
        for phase, start, end, ledgers in self._laps:
            seconds = end - start if self._cuda is None else start.elapsed_time(end) / 1e3
            for ledger in ledgers:
                ledger[phase] = ledger.get(phase, 0.0) + seconds / len(ledgers)
        self._laps.clear()

    def _mark(self) -> Any:
        if self._cuda is None:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._cuda))
        return event
