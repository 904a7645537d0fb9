"""The online teacher: one target forward a micro-batch, logits only where a row needs them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from vtrim.models.target import Target
from vtrim.training.batch import Features, Rows, TrainSample

CHUNK_COLUMNS = 8192


@dataclass(frozen=True)
class SampleStates:
    """What the target says about one sample.

    aux: [T, 3d]; hidden: [m, d] final states at ``positions``; positions: [m]; best: [m] target id
    of the arg-max over the full vocabulary.
    """

    aux: Tensor
    hidden: Tensor
    positions: Tensor
    best: Tensor

    @property
    def nbytes(self) -> int:
        """Size in memory [bytes]."""
        return sum(t.nbytes for t in (self.aux, self.hidden, self.positions, self.best))


class Teacher:
    """Turns micro-batches into features; keeps target states of seen samples up to a budget."""

    def __init__(
        self, target: Target, vocab_ids: Tensor, dtype: torch.dtype, cache_bytes: int = 0
    ) -> None:
        self.target = target
        self.vocab_ids = vocab_ids = vocab_ids.to(target.device)
        self.dtype = dtype
        self.cache_bytes = cache_bytes
        self.cached_bytes = 0
        self._cache: dict[int, SampleStates] = {}
        self._heldout: dict[int, SampleStates] = {}
        self._draft_id = torch.full(
            (target.vocab_size,), -1, dtype=torch.int64, device=target.device
        )
        self._draft_id[vocab_ids] = torch.arange(vocab_ids.numel(), device=target.device)
        self._full = vocab_ids.numel() == target.vocab_size
        self._embedding = target.embedding.to(dtype)

    @torch.no_grad()
    def features(
        self, samples: list[TrainSample], rows: Rows, *, training: bool = True
    ) -> Features:
        """The target's states, soft targets over D and arg-max for one micro-batch.

        training: training samples; False for held-out ones, whose indices are their own.
        """
        states = self._states(samples, rows, self._cache if training else self._heldout)
        aux = torch.nn.utils.rnn.pad_sequence([s.aux for s in states], batch_first=True)
        shape = rows.ids.shape
        slot = torch.full(shape, -1, dtype=torch.int64, device=rows.ids.device)
        best, best_draft = slot.clone(), slot.clone()
        start = 0
        for b, state in enumerate(states):
            count = state.positions.numel()
            slot[b, state.positions] = torch.arange(start, start + count, device=slot.device)
            best[b, state.positions] = state.best
            best_draft[b, state.positions] = self._draft_id[state.best]
            start += count
        hidden = torch.cat([s.hidden for s in states])
        return Features(
            embeds=F.embedding(rows.ids, self._embedding),
            aux=aux.to(self.dtype),
            teacher=self._soft_targets(hidden),
            slot=slot,
            best=best,
            best_draft=best_draft,
        )

    def _soft_targets(self, hidden: Tensor) -> Tensor:
        """[m, d] -> softmax(z[D]) [m, k] in the draft's dtype."""
        logits = (
            self.target.logits(hidden)
            if self._full
            else self.target.logits_of(hidden, self.vocab_ids)
        )
        return logits.float().softmax(-1).to(self.dtype)

    def _states(
        self, samples: list[TrainSample], rows: Rows, cache: dict[int, SampleStates]
    ) -> list[SampleStates]:
        if all(s.index in cache for s in samples):
            return [cache[s.index] for s in samples]
        states = self._forward(samples, rows)
        for sample, state in zip(samples, states, strict=True):
            fits = self.cached_bytes + state.nbytes <= self.cache_bytes
            if sample.index not in cache and fits:
                cache[sample.index] = state
                self.cached_bytes += state.nbytes
        return states

    def _forward(self, samples: list[TrainSample], rows: Rows) -> list[SampleStates]:
        lengths = [s.ids.size for s in samples]
        out = self.target.forward(rows.ids)  # causal: padding on the right changes nothing
        needed = teacher_positions(rows)
        states = []
        for b, length in enumerate(lengths):
            positions = needed[b].nonzero().squeeze(-1)
            hidden = out.hidden[b, positions]
            states.append(
                SampleStates(
                    aux=out.aux[b, :length].clone(),
                    hidden=hidden,
                    positions=positions,
                    best=full_argmax(self.target, hidden),
                )
            )
        return states


def teacher_positions(rows: Rows) -> Tensor:
    """[B, T] True where some step's row needs the teacher (position t+1+i)."""
    needed = torch.zeros(rows.ids.shape, dtype=torch.bool, device=rows.ids.device)
    for i, trained in enumerate(rows.trained):
        batch, row = trained.nonzero(as_tuple=True)
        needed[batch, rows.position[batch, row] + 1 + i] = True
    return needed


def full_argmax(target: Target, hidden: Tensor) -> Tensor:
    """[m, d] -> [m] arg-max over the full vocabulary, the head streamed in chunks of columns."""
    best = torch.full((hidden.shape[0],), -1, dtype=torch.int64, device=hidden.device)
    top = torch.full((hidden.shape[0],), float("-inf"), device=hidden.device)
    for start in range(0, target.vocab_size, CHUNK_COLUMNS):
        stop = min(start + CHUNK_COLUMNS, target.vocab_size)
        logits = target.logits_between(hidden, start, stop).float()
        value, where = logits.max(-1)
        better = value > top
        top = torch.where(better, value, top)
        best = torch.where(better, where + start, best)
    return best
