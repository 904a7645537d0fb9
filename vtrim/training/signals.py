"""SIGINT and SIGTERM: training ends after the step or check in hand, loading at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any


class StopSignal:
    """Remembers a signal while the block runs; a second one changes nothing."""

    def __init__(self) -> None:
        self.received = 0
        self._previous: dict[int, Any] = {}

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.received = number

    def __enter__(self) -> StopSignal:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt in the block, as SIGINT does; a StopSignal inside wins."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
