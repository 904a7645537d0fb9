"""How much of a run is done, and the learning rate that goes with it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vtrim.training.settings import TrainSettings


@dataclass(frozen=True)
class Schedule:
    """The bounds of a run: passes over the data, steps, minutes; whichever comes first."""

    settings: TrainSettings
    steps_per_epoch: int

    @property
    def total_steps(self) -> int | None:
        """The last optimiser step, or None when only time bounds the run."""
        s = self.settings
        epochs = s.epochs if s.epochs or s.max_minutes or s.max_steps else 1
        by_epochs = epochs * self.steps_per_epoch if epochs else None
        bounds = [b for b in (by_epochs, s.max_steps) if b]
        return min(bounds) if bounds else None

    def fraction(self, step: int, seconds: float) -> float:
        """How much of the run is done, 0 to 1: by steps, or by time where that is further."""
        total, minutes = self.total_steps, self.settings.max_minutes
        by_steps = step / total if total else 0.0
        by_time = seconds / (60 * minutes) if minutes else 0.0
        return min(1.0, max(by_steps, by_time))

    def rate_factor(self, fraction: float) -> float:
        """Share of the peak rates: linear warm-up, then cosine down to ``min_lr_ratio``."""
        s = self.settings
        if fraction < s.warmup:
            total = self.total_steps
            first = 1 / total if total else s.warmup / 10
            return max(fraction, min(first, s.warmup)) / s.warmup
        done = (fraction - s.warmup) / max(1e-9, 1 - s.warmup)
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        return s.min_lr_ratio + (1 - s.min_lr_ratio) * cosine
