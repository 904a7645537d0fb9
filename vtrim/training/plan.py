"""Which samples make up which micro-batch: fixed by the seed, whatever the number of processes.

An optimiser step has ``slots`` = processes * grad_accum micro-batches. A sample always lands in
slot index % slots, so a process meets the same samples every epoch (its cached target states stay
useful), and 1 process with 2 accumulation steps sees what 2 processes with 1 see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vtrim.errors import InputError

SORT_WINDOW = 16  # micro-batches whose samples are sorted by length together: little padding


@dataclass(frozen=True)
class BatchPlan:
    """Micro-batches of every step. lengths: [n] tokens of each sample."""

    lengths: npt.NDArray[np.int64]
    slots: int
    micro_batch: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps in one pass over the data."""
        largest_slot = -(-self.lengths.size // self.slots)
        return max(1, -(-largest_slot // self.micro_batch))

    def check(self) -> None:
        """Refuses data too small for the batch.

        Raises:
            InputError: fewer samples than slots.
        """
        if self.lengths.size < self.slots:
            raise InputError(
                f"{self.lengths.size} training samples cannot fill {self.slots} micro-batches a "
                "step (processes x grad-accum). Use fewer, or more data."
            )

    def step(self, number: int) -> list[list[list[int]]]:
        """Each slot's micro-batch at optimiser step ``number`` (from 0): a list of bins, each a
        list of the samples that share a sequence."""
        epoch, within = divmod(number, self.steps_per_epoch)
        return [[[index] for index in batch] for batch in self._epoch(epoch)[within]]

    def _epoch(self, epoch: int) -> list[list[list[int]]]:
        if getattr(self, "_cached_epoch", None) != epoch:
            rng = np.random.default_rng((self.seed, epoch))
            steps = self.steps_per_epoch
            order = rng.permutation(steps)
            per_slot = [self._slot(slot, rng, steps) for slot in range(self.slots)]
            plan = [[batches[i] for batches in per_slot] for i in order]
            object.__setattr__(self, "_cached_epoch", epoch)
            object.__setattr__(self, "_cached_plan", plan)
        cached: list[list[list[int]]] = self._cached_plan  # type: ignore[attr-defined]
        return cached

    def _slot(self, slot: int, rng: np.random.Generator, steps: int) -> list[list[int]]:
        """The slot's samples in ``steps`` micro-batches; a short slot repeats its first samples."""
        own = rng.permutation(np.arange(slot, self.lengths.size, self.slots))
        filled = np.resize(own, steps * self.micro_batch)
        width = SORT_WINDOW * self.micro_batch
        batches: list[list[int]] = []
        for window in _split(filled, width):
            ordered = window[np.argsort(self.lengths[window], kind="stable")]
            batches += [part.tolist() for part in _split(ordered, self.micro_batch)]
        return batches


def _split(values: npt.NDArray[np.int64], width: int) -> Sequence[npt.NDArray[np.int64]]:
    return [values[i : i + width] for i in range(0, values.size, width)]
