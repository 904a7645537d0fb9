"""Micro-batches of every optimiser step, laid out and judged, for this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vtrim.training.batch import Features, Rows, TrainSample, make_rows, to_device
from vtrim.training.data import Split, rows_per_step
from vtrim.training.forward import padding_share
from vtrim.training.plan import BatchPlan, Bins
from vtrim.training.settings import TrainSettings
from vtrim.training.teacher import Teacher


@dataclass(frozen=True)
class Work:
    """One optimiser step: what this process forwards, and what the whole group counts.

    divisors: [S] N of every unroll step; tokens: reply tokens; micro: sample indices, the bins of
    each micro-batch of this process; seeds: of each micro-batch's noise, the same whatever the
    number of processes.
    """

    divisors: Tensor
    tokens: int
    micro: list[Bins]
    seeds: list[int]


def drawn_heldout(count: int, settings: TrainSettings) -> list[int]:
    """Which of ``count`` held-out samples are checked: at random, for files are often grouped."""
    generator = torch.Generator().manual_seed(settings.seed)
    drawn: list[int] = torch.randperm(count, generator=generator).tolist()
    return drawn[: settings.eval_samples]


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
        room = settings.max_length if settings.packing else None
        self.plan = BatchPlan(lengths, world * accum, micro_batch, settings.seed, room)
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
        own = range(self.rank * self.accum, (self.rank + 1) * self.accum)
        replies = sum(int(self.split.train[i].loss_mask.sum()) for i in everyone)
        return Work(
            divisors=to_device(divisors, self.device),
            tokens=replies,
            micro=[slots[slot] for slot in own],
            seeds=[self._noise_seed(number, slot) for slot in own],
        )

    def _noise_seed(self, number: int, slot: int) -> int:
        epoch, within = divmod(number, self.plan.steps_per_epoch)
        entropy = np.random.SeedSequence((self.settings.seed, epoch, within, slot))
        return int(entropy.generate_state(1, np.uint32)[0])

    def batch(self, bins: Bins, seed: int | None = None) -> tuple[Rows, Features]:
        """One training micro-batch, with noise on the target's states where a seed is given."""
        chosen = [[self.split.train[i] for i in documents] for documents in bins]
        rows, features = self._batch(chosen, heldout=False)
        if seed is not None and self.settings.noise > 0:
            features = replace(features, aux=with_noise(features.aux, self.settings.noise, seed))
        return rows, features

    def padding(self, steps: int = 50) -> float:
        """Share of the target's forwards that is padding, over the first steps of a pass."""
        if self.device == "cpu":
            return 0.0  # each sample goes alone there
        lengths = self.plan.lengths
        return padding_share(
            [int(lengths[index]) for documents in bins for index in documents]
            for number in range(min(steps, self.plan.steps_per_epoch))
            for bins in self.plan.step(number)
        )

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
        """The held-out samples that are checked."""
        return drawn_heldout(len(self.split.heldout), self.settings)

    def _batch(self, bins: Sequence[Sequence[TrainSample]], heldout: bool) -> tuple[Rows, Features]:
        # held out, the chains that serving visits are measured whatever is trained
        alignment = "exact" if heldout else self.settings.mask_alignment
        rows = make_rows(bins, self.settings.ttt_steps, alignment, self.device)
        return rows, self.teacher.features(bins, rows, heldout=heldout)


def with_noise(aux: Tensor, width: float, seed: int) -> Tensor:
    """aux: [1, N, 3d] plus uniform noise in +-width times the RMS of each of the 3 N states."""
    states = aux.unflatten(-1, (3, -1)).float()
    size = states.square().mean(-1, keepdim=True).sqrt()
    generator = torch.Generator(aux.device).manual_seed(seed)
    noise = torch.rand(states.shape, generator=generator, device=aux.device).mul_(2).sub_(1)
    noisy: Tensor = states.addcmul(noise, size, value=width)
    return noisy.flatten(-2).to(aux.dtype)
