"""Micro-batches of every optimiser step, laid out and judged, for this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vtrim.training.batch import Features, Rows, TrainSample, make_rows
from vtrim.training.data import Split, rows_per_step
from vtrim.training.plan import BatchPlan
from vtrim.training.settings import TrainSettings
from vtrim.training.teacher import Teacher


@dataclass(frozen=True)
class Work:
    """One optimiser step: what this process forwards, and what the whole group counts.

    divisors: [S] N of every unroll step; tokens: reply tokens; micro: sample indices, a list of
    bins for each micro-batch of this process.
    """

    divisors: Tensor
    tokens: int
    micro: list[list[list[int]]]


class Feeder:
    """Turns step numbers into batches. The same seed gives the same batches on any machine."""

    def __init__(
        self,
        split: Split,
        teacher: Teacher,
        settings: TrainSettings,
        *,
        rank: int,
        world: int,
        micro_batch: int,
        accum: int,
    ) -> None:
        self.split = split
        self.teacher = teacher
        self.settings = settings
        self.rank, self.world, self.accum = rank, world, accum
        self.device = str(teacher.target.device)
        lengths = np.array([s.ids.size for s in split.train], dtype=np.int64)
        self.plan = BatchPlan(lengths, world * accum, micro_batch, settings.seed)
        self.plan.check()
        self._rows_of = rows_per_step(split.train, settings.ttt_steps, settings.mask_alignment)

    def work(self, number: int) -> Work:
        """What optimiser step ``number`` (from 0) consists of."""
        slots = self.plan.step(number)
        everyone = [index for bins in slots for documents in bins for index in documents]
        if self.settings.divisor == "bt":
            tokens = sum(self.split.train[i].ids.size for i in everyone)
            divisors = np.full(self.settings.ttt_steps, tokens)
        else:
            divisors = self._rows_of[everyone].sum(axis=0)
        own = slots[self.rank * self.accum : (self.rank + 1) * self.accum]
        replies = sum(int(self.split.train[i].loss_mask.sum()) for i in everyone)
        return Work(torch.from_numpy(divisors).to(self.device), replies, own)

    def batch(self, bins: list[list[int]]) -> tuple[Rows, Features]:
        """One training micro-batch."""
        chosen = [[self.split.train[i] for i in documents] for documents in bins]
        return self._batch(chosen, heldout=False)

    def heldout(self) -> Iterator[tuple[Rows, Features, bool]]:
        """The held-out samples that fall to this process, in micro-batches of like length.

        Every process gets as many batches (under ZeRO-3 all must run); the third value is False
        for one that only keeps step and is not counted.
        """
        order = sorted(self.heldout_drawn(), key=lambda i: self.split.heldout[i].ids.size)
        width = self.plan.micro_batch
        for start in range(0, len(order), width * self.world):
            together = order[start : start + width * self.world]
            own = together[self.rank :: self.world]
            chosen = [[self.split.heldout[i]] for i in own or together[:1]]
            yield *self._batch(chosen, heldout=True), bool(own)

    def heldout_drawn(self) -> list[int]:
        """The held-out samples that are checked: drawn at random, for files are often grouped."""
        generator = torch.Generator().manual_seed(self.settings.seed)
        drawn = torch.randperm(len(self.split.heldout), generator=generator)
        return drawn[: self.settings.eval_samples].tolist()

    def _batch(
        self, bins: Sequence[Sequence[TrainSample]], heldout: bool
    ) -> tuple[Rows, Features]:
        # held out, the chains that serving visits are measured whatever is trained
        alignment = "exact" if heldout else self.settings.mask_alignment
        rows = make_rows(bins, self.settings.ttt_steps, alignment, self.device)
        return rows, self.teacher.features(bins, rows, heldout=heldout)
