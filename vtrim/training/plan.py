"""Which samples make up which micro-batch: fixed by the seed, whatever the number of processes.

An optimiser step has ``slots`` = processes * grad_accum micro-batches. A sample always lands in
slot index % slots, so a process meets the same samples every epoch (its cached target states stay
useful), and 1 process with 2 accumulation steps sees what 2 processes with 1 see.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vtrim.errors import InputError

SORT_WINDOW = 16  # micro-batches whose samples are sorted by length together: little padding

Bins = list[list[int]]
"""The samples of each sequence."""


@dataclass(frozen=True)
class BatchPlan:
    """Micro-batches of every step. lengths: [n] tokens of each sample.

    pack_to: tokens a sequence may hold; whole samples share it, the same ones in every epoch.
    None: one sample a sequence.
    """

    lengths: npt.NDArray[np.int64]
    slots: int
    micro_batch: int
    seed: int
    pack_to: int | None = None

    @cached_property
    def _bins(self) -> list[Bins]:
        """Each slot's sequences."""
        rng = np.random.default_rng((self.seed, 0xB125))
        found = []
        for slot in range(self.slots):
            own = np.arange(slot, self.lengths.size, self.slots)
            if self.pack_to is None:
                found.append([[int(index)] for index in own])
            else:
                found.append(pack(rng.permutation(own), self.lengths, self.pack_to))
        return found

    @cached_property
    def steps_per_epoch(self) -> int:
        """Optimiser steps in one pass over the data."""
        return -(-max(len(bins) for bins in self._bins) // self.micro_batch)

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

    def step(self, number: int) -> list[Bins]:
        """Each slot's micro-batch at optimiser step ``number`` (from 0)."""
        epoch, within = divmod(number, self.steps_per_epoch)
        return self._epoch(epoch)[within]

    def _epoch(self, epoch: int) -> list[list[Bins]]:
        if getattr(self, "_cached_epoch", None) != epoch:
            rng = np.random.default_rng((self.seed, epoch))
            order = rng.permutation(self.steps_per_epoch)
            per_slot = [self._slot(bins, rng) for bins in self._bins]
            object.__setattr__(self, "_cached_epoch", epoch)
            object.__setattr__(self, "_cached_plan", [[b[i] for b in per_slot] for i in order])
        cached: list[list[Bins]] = self._cached_plan  # type: ignore[attr-defined]
        return cached

    def _slot(self, bins: Bins, rng: np.random.Generator) -> list[Bins]:
        """A slot's sequences in micro-batches; a short slot repeats its first ones."""
        tokens = np.array([self.lengths[members].sum() for members in bins])
        filled = np.resize(rng.permutation(len(bins)), self.steps_per_epoch * self.micro_batch)
        batches: list[Bins] = []
        for window in _split(filled, SORT_WINDOW * self.micro_batch):
            ordered = window[np.argsort(tokens[window], kind="stable")]
            batches += [[bins[i] for i in part] for part in _split(ordered, self.micro_batch)]
        return batches


def pack(order: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], room: int) -> Bins:
    """Whole samples in bins of at most ``room`` tokens: longest first, each where it fits best.

    ``order`` breaks ties; a sample longer than ``room`` has a bin of its own.
    """
    bins: Bins = []
    left: list[int] = []  # distinct free rooms, ascending
    with_room: dict[int, list[int]] = {}  # bins by free room
    for index in order[np.argsort(-lengths[order], kind="stable")].tolist():
        size = int(lengths[index])
        at = bisect_left(left, size)
        if at == len(left):
            bins.append([index])
            free, chosen = room - size, len(bins) - 1
        else:
            fitting = with_room[left[at]]
            free, chosen = left[at] - size, fitting.pop()
            if not fitting:
                del with_room[left.pop(at)]
            bins[chosen].append(index)
        if free > 0:
            if free not in with_room:
                insort(left, free)
                with_room[free] = []
            with_room[free].append(chosen)
    return bins


def _split(values: npt.NDArray[np.int64], width: int) -> Sequence[npt.NDArray[np.int64]]:
    return [values[i : i + width] for i in range(0, values.size, width)]
