"""What the target says about a sample: computed online, kept in memory, or read from disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from vtrim.models.target import Target
from vtrim.training.batch import TrainSample
from vtrim.training.rows import teacher_positions

CHUNK_COLUMNS = 8192


@dataclass(frozen=True)
class SampleStates:
    """What the target says about one sample of T tokens.

    aux: [T, 3d]; hidden: [m, d] final states at ``rows.teacher_positions``; best: [m] target id of
    the arg-max over the full vocabulary; log_z: [m] fp32 log-sum-exp over the full vocabulary.
    """

    aux: Tensor
    hidden: Tensor
    best: Tensor
    log_z: Tensor

    @property
    def nbytes(self) -> int:
        """Size in memory [bytes]."""
        return sum(t.nbytes for t in (self.aux, self.hidden, self.best, self.log_z))


class StateSource(Protocol):
    """Where target states come from. ``heldout`` samples have an index space of their own."""

    def states(
        self, samples: Sequence[TrainSample], *, heldout: bool = False
    ) -> list[SampleStates]:
        """The states of each sample, in order, on the training device."""
        ...


class OnlineStates:
    """One target forward a call, logits only where a row can need them."""

    def __init__(self, target: Target) -> None:
        self.target = target

    @torch.no_grad()
    def states(
        self, samples: Sequence[TrainSample], *, heldout: bool = False
    ) -> list[SampleStates]:
        """See ``StateSource``."""
        del heldout
        longest = max(s.ids.size for s in samples)
        ids = np.zeros((len(samples), longest), dtype=np.int64)
        for row, sample in zip(ids, samples, strict=True):
            row[: sample.ids.size] = sample.ids
        out = self.target.forward(torch.from_numpy(ids).to(self.target.device))
        # causal: padding on the right changes nothing
        found = []
        for b, sample in enumerate(samples):
            judges = torch.from_numpy(teacher_positions(sample.loss_mask)).to(out.hidden.device)
            hidden = out.hidden[b, judges]
            best, log_z = full_vocabulary(self.target, hidden)
            aux = out.aux[b, : sample.ids.size].clone()
            found.append(SampleStates(aux=aux, hidden=hidden, best=best, log_z=log_z))
        return found


class MemoryStates:
    """Keeps the states of samples that were seen, up to a budget in bytes."""

    def __init__(self, inner: StateSource, limit: int) -> None:
        self.inner = inner
        self.limit = limit
        self.used = 0
        self._kept: dict[tuple[bool, int], SampleStates] = {}

    def states(
        self, samples: Sequence[TrainSample], *, heldout: bool = False
    ) -> list[SampleStates]:
        """See ``StateSource``."""
        keys = [(heldout, s.index) for s in samples]
        if all(key in self._kept for key in keys):
            return [self._kept[key] for key in keys]
        found = self.inner.states(samples, heldout=heldout)
        for key, state in zip(keys, found, strict=True):
            if key not in self._kept and self.used + state.nbytes <= self.limit:
                self._kept[key] = state
                self.used += state.nbytes
        return found


def full_vocabulary(target: Target, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """[m, d] -> arg-max [m] and log-sum-exp [m] over V, the head streamed in chunks of columns."""
    count = hidden.shape[0]
    best = torch.full((count,), -1, dtype=torch.int64, device=hidden.device)
    top = torch.full((count,), float("-inf"), device=hidden.device)
    log_z = top.clone()
    for start in range(0, target.vocab_size, CHUNK_COLUMNS):
        stop = min(start + CHUNK_COLUMNS, target.vocab_size)
        logits = target.logits_between(hidden, start, stop).float()
        value, where = logits.max(-1)
        better = value > top
        top = torch.where(better, value, top)
        best = torch.where(better, where + start, best)
        log_z = torch.logaddexp(log_z, logits.logsumexp(-1))
    return best, log_z
