"""What the target says about a sample: computed online, kept in memory, or read from disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from vtrim.models.target import Target
from vtrim.training.batch import TrainSample, to_device
from vtrim.training.forward import forward_groups
from vtrim.training.rows import teacher_positions

CHUNK_COLUMNS = 4096
CHUNK_ROWS = {"cpu": 512, "cuda": 16384}


@dataclass(frozen=True)
class SampleStates:
    """What the target says about one sample of T tokens.

    aux: [T, 3d]; hidden: [m, d] final states at ``rows.teacher_positions``; best: [m] target id of
    the arg-max over the full vocabulary; log_z: [m] fp32 log-sum-exp over the full vocabulary, not
    finite where the target's logits are not (``best`` means nothing there).
    """

    aux: Tensor
    hidden: Tensor
    best: Tensor
    log_z: Tensor

    @property
    def nbytes(self) -> int:
        """Size in memory [bytes]."""
        return sum(t.nbytes for t in (self.aux, self.hidden, self.best, self.log_z))

    def is_finite(self) -> bool:
        """Whether the target said something about every token; waits for the device."""
        return bool(self.aux.isfinite().all() & self.log_z.isfinite().all())


class StateSource(Protocol):
    """Where target states come from. ``heldout`` samples have an index space of their own."""

    def states(
        self, samples: Sequence[TrainSample], *, heldout: bool = False
    ) -> list[SampleStates]:
        """The states of each sample, in order, on the training device."""
        ...


class OnlineStates:
    """Target forwards over samples of like length, logits only where a row can need them."""

    def __init__(self, target: Target) -> None:
        self.target = target

    @torch.no_grad()
    def states(
        self, samples: Sequence[TrainSample], *, heldout: bool = False
    ) -> list[SampleStates]:
        """See ``StateSource``."""
        del heldout
        found: dict[int, SampleStates] = {}
        for group in self._groups([sample.ids.size for sample in samples]):
            together = self._forward([samples[i] for i in group])
            found.update(zip(group, together, strict=True))
        return [found[i] for i in range(len(samples))]

    def _groups(self, lengths: list[int]) -> list[list[int]]:
        """Which samples share a forward.

        On a CPU none: it costs 5 % (see ``forward``), and what the target says of a sample then
        depends on that sample alone, to the last bit, however often it is computed again.
        """
        if self.target.device.type == "cpu":
            return [[i] for i in range(len(lengths))]
        return forward_groups(lengths)

    def _forward(self, samples: Sequence[TrainSample]) -> list[SampleStates]:
        """One forward. Causal: padding on the right changes nothing."""
        longest = max(sample.ids.size for sample in samples)
        ids = np.zeros((len(samples), longest), dtype=np.int64)
        for row, sample in zip(ids, samples, strict=True):
            row[: sample.ids.size] = sample.ids
        out = self.target.forward(to_device(ids, self.target.device))
        judges = [teacher_positions(sample.loss_mask) for sample in samples]
        places = np.concatenate([at + b * longest for b, at in enumerate(judges)])
        counts = [at.size for at in judges]
        flat = to_device(places, out.hidden.device)
        hidden = out.hidden.flatten(0, 1).index_select(0, flat)
        best, log_z = full_vocabulary(self.target, hidden)
        parts = (hidden.split(counts), best.split(counts), log_z.split(counts))
        return [
            SampleStates(aux=out.aux[b, : sample.ids.size].clone(), hidden=h, best=top, log_z=z)
            for b, (sample, h, top, z) in enumerate(zip(samples, *parts, strict=True))
        ]


class MemoryStates:
    """Keeps the states of samples that were seen, up to a budget in bytes."""

    held = None  # nothing of it outlives the run

    def __init__(self, inner: StateSource, limit: int) -> None:
        self.inner = inner
        self.limit = limit
        self.keeps_training = True
        self.used = 0
        self._kept: dict[tuple[bool, int], SampleStates] = {}

    def states(
        self, samples: Sequence[TrainSample], *, heldout: bool = False
    ) -> list[SampleStates]:
        """See ``StateSource``."""
        keys = [(heldout, s.index) for s in samples]
        known = {key: self._kept[key] for key in keys if key in self._kept}
        missing = {k: s for k, s in zip(keys, samples, strict=True) if k not in known}
        if missing:
            computed = self.inner.states(list(missing.values()), heldout=heldout)
            for key, state in zip(missing, computed, strict=True):
                known[key] = state
                wanted = self.keeps_training or heldout
                if wanted and self.used + state.nbytes <= self.limit:
                    self._kept[key] = state
                    self.used += state.nbytes
        return [known[key] for key in keys]

    def close(self) -> None:
        """Lets go of the states."""
        self._kept.clear()
        self.used = 0


def full_vocabulary(target: Target, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """[m, d] -> arg-max [m] and log-sum-exp [m] over V, streamed in chunks of rows and columns."""
    parts = hidden.split(CHUNK_ROWS.get(hidden.device.type, CHUNK_ROWS["cuda"]))
    found = [_full_vocabulary(target, part) for part in parts]
    return torch.cat([best for best, _ in found]), torch.cat([log_z for _, log_z in found])


def _full_vocabulary(target: Target, hidden: Tensor) -> tuple[Tensor, Tensor]:
    best = torch.zeros(hidden.shape[0], dtype=torch.int64, device=hidden.device)
    top = torch.full(best.shape, torch.finfo(torch.float32).min, device=hidden.device)
    total = torch.zeros_like(top)  # of exp(logit - top)
    for start in range(0, target.vocab_size, CHUNK_COLUMNS):
        stop = min(start + CHUNK_COLUMNS, target.vocab_size)
        logits = target.logits_between(hidden, start, stop).float()
        value, where = logits.max(-1)
        best = torch.where(value > top, where + start, best)
        peak = torch.maximum(top, value)
        chunk = logits.sub_(peak[:, None]).exp_().sum(-1)
        top, total = peak, total * (top - peak).exp() + chunk
    return best, top + total.log()
