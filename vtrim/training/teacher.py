"""The teacher: target states laid out as a micro-batch, and the target's logits over D."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from vtrim.models.target import Target
from vtrim.training.batch import Features, Rows, TrainSample
from vtrim.training.states import StateSource


class Teacher:
    """Turns micro-batches into features; ``logits`` is the target's head over D."""

    def __init__(
        self, target: Target, vocab_ids: Tensor, dtype: torch.dtype, source: StateSource
    ) -> None:
        self.target = target
        self.vocab_ids = vocab_ids.to(target.device)
        self.dtype = dtype
        self.source = source
        self._draft_id = torch.full(
            (target.vocab_size,), -1, dtype=torch.int64, device=target.device
        )
        self._draft_id[self.vocab_ids] = torch.arange(vocab_ids.numel(), device=target.device)
        full = vocab_ids.numel() == target.vocab_size
        self._head = target.logits if full else target.head_of(self.vocab_ids)
        self._embedding = target.embedding.to(dtype)

    @torch.no_grad()
    def features(
        self, bins: Sequence[Sequence[TrainSample]], rows: Rows, *, heldout: bool = False
    ) -> Features:
        """The target's states of one micro-batch, laid out as ``rows`` has them."""
        samples = [sample for documents in bins for sample in documents]
        states = self.source.states(samples, heldout=heldout)
        best = torch.cat([s.best for s in states])
        return Features(
            embeds=F.embedding(rows.ids, self._embedding),
            aux=torch.cat([s.aux for s in states])[None].to(self.dtype),
            hidden=torch.cat([s.hidden for s in states]),
            log_z=torch.cat([s.log_z for s in states]),
            best=best,
            best_draft=self._draft_id[best],
        )

    @torch.no_grad()
    def logits(self, hidden: Tensor) -> Tensor:
        """The target's logits over D. hidden: [c, d] -> [c, k], in the target's dtype."""
        return self._head(hidden)
