"""SIGINT and SIGTERM as a wish that the training loop grants after the step in hand."""

from __future__ import annotations

import signal
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
