"""What a checkpoint carries beside weights and optimiser."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class TrainState:
    """Where a run stands.

    step: optimiser steps taken, the skipped ones included; tokens: reply tokens seen; seconds [s];
    bad_steps: steps skipped for a loss or gradient that was not finite; checked: the last step
    whose draft was measured, -1 for none; worse: checks in a row without a better draft; best,
    heldout and decoded: log entries of the kept weights and of the last check.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    bad_steps: int = 0
    checked: int = -1
    worse: int = 0
    stopped_early: bool = False
    best: dict[str, Any] = field(default_factory=dict)
    heldout: dict[str, Any] = field(default_factory=dict)
    decoded: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The fields as a plain mapping."""
        return dict(vars(self))
