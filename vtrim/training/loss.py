"""Head and loss in one pass over chunks of target states, the gradient formed on the way.

A block holds some of the target's states and all (row, unroll step) pairs they judge: the target's
logits over D are computed once for all steps. Its pairs go through the draft's head in chunks, so
neither the target's logits nor the draft's ever exist for a whole batch. Backward only scales what
the forward pass formed. A pair whose coefficient is 0 takes no part: its loss is 0, it is not
right, and its gradient is exactly 0, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch
from torch import Tensor

from vtrim.training.batch import Features, Rows
from vtrim.training.criteria import CRITERIA, DraftLaw, TargetLaw
from vtrim.training.settings import Loss, OovPolicy

CHUNK_ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 26}
"""Logits held at once: on a CPU what malloc gives without fresh pages, enough to fill a GPU."""
MIN_PAIRS = 64  # a chunk has at least so many pairs where k is large: fewer slow the products down
POOL_ELEMENTS = 1 << 24  # gradients by the logits pooled until the head's gradient is added to

TeacherLogits = Callable[[Tensor], Tensor]
"""The target's logits over D: [c, d] -> [c, k]."""


@dataclass(frozen=True)
class Judge:
    """What the pairs of a micro-batch are judged by."""

    rows: Rows
    features: Features
    teacher_logits: TeacherLogits
    loss: Loss = "soft-ce"
    oov: OovPolicy = "drop"

    @property
    def weight(self) -> Tensor:
        """[n] 1 where a pair counts in the loss, 0 where its teacher's arg-max is not in D.

        NaN where the target's state is not finite: the whole step is then left out, and counted.
        """
        log_z = self.features.log_z
        counts = torch.ones_like(log_z)
        if self.oov == "drop":
            counts = (self.features.best_draft >= 0).to(log_z.dtype)
        return (counts + 0 * log_z)[self.rows.slot]

    def most(self, k: int) -> int:
        """States of a block and pairs of a chunk at most."""
        device = self.features.hidden.device.type
        return max(MIN_PAIRS, CHUNK_ELEMENTS.get(device, CHUNK_ELEMENTS["cuda"]) // k)

    def blocks(self, k: int) -> Iterator[tuple[slice, list[slice]]]:
        """Target states, and the pairs they judge in chunks of like size; none without a pair."""
        first, most = self.rows.first_row, self.most(k)
        for low in range(0, first.size - 1, most):
            high = min(low + most, first.size - 1)
            start, stop = int(first[low]), int(first[high])
            if start < stop:
                size = ceil((stop - start) / ceil((stop - start) / most))
                cuts = range(start, stop, size)
                yield slice(low, high), [slice(at, min(at + size, stop)) for at in cuts]

    def target_law(self, states: slice, wide: torch.dtype) -> TargetLaw:
        """The target's law of some states; that of dropped ones is uniform, never NaN."""
        logits = self.teacher_logits(self.features.hidden[states]).to(wide)
        log_z = self.features.log_z[states].to(wide)
        if self.oov == "drop":
            dropped = self.features.best_draft[states] < 0
            logits = logits.masked_fill(dropped[:, None], 0.0)
            log_z = log_z.masked_fill(dropped, 0.0)
        return TargetLaw.of(logits, log_z)


class _HeadGradient:
    """Sum over chunks of gradient^T @ hidden, [k, d] in the head's dtype.

    Where that dtype is narrow the gradients by the logits are pooled first: every product is summed
    in fp32 inside, and the running sum is rounded a few times instead of once a chunk.
    """

    def __init__(self, weight: Tensor, most_pairs: int) -> None:
        k = weight.shape[0]
        wide = weight.dtype in (torch.float32, torch.float64)
        rows = 0 if wide else max(most_pairs, POOL_ELEMENTS // k)
        self.sum = torch.zeros_like(weight)
        self.pool = weight.new_empty((rows, k))
        self.hidden = weight.new_empty((rows, weight.shape[1]))
        self.used = 0

    def narrow(self, gradient: Tensor) -> Tensor:
        """gradient: [c, k] fp32 -> the same in the head's dtype, at its place in the pool."""
        if gradient.dtype == self.pool.dtype:
            return gradient
        count = gradient.shape[0]
        if self.used + count > self.pool.shape[0]:
            self.flush()
        return self.pool[self.used : self.used + count].copy_(gradient)

    def add(self, gradient: Tensor, hidden: Tensor) -> None:
        """gradient: [c, k] from ``narrow``; hidden: [c, d] times the pairs' coefficients."""
        if not self.pool.shape[0]:
            self.sum.addmm_(gradient.T, hidden)
            return
        self.hidden[self.used : self.used + hidden.shape[0]] = hidden
        self.used += hidden.shape[0]

    def flush(self) -> Tensor:
        """Adds what is pooled; returns the sum."""
        if self.used:
            self.sum.addmm_(self.pool[: self.used].T, self.hidden[: self.used])
            self.used = 0
        return self.sum


class HeadLoss(torch.autograd.Function):
    """Weighted sum of the pairs' losses, each pair's loss, and whether its arg-max is right."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, coefficient: Tensor, judge: Judge, learns: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """hidden: [n, d] normed rows; weight: [k, d] head; coefficient: [n] of each pair's loss.

        Returns the scalar sum of coefficient * loss, losses [n] and right [n] bool. The gradients
        are formed only if ``learns``, that of the head only if it is trained.
        """
        wide = torch.promote_types(hidden.dtype, torch.float32)
        coefficient = coefficient.to(wide)
        losses = hidden.new_zeros(hidden.shape[0], dtype=wide)
        right = torch.zeros(hidden.shape[0], dtype=torch.bool, device=hidden.device)
        of_hidden = torch.zeros_like(hidden) if learns else None
        trained = learns and ctx.needs_input_grad[1]
        of_weight = _HeadGradient(weight, judge.most(weight.shape[0])) if trained else None
        best = judge.features.best_draft[judge.rows.slot]
        for states, chunks in judge.blocks(weight.shape[0]):
            target = judge.target_law(states, wide)
            for pairs in chunks:
                scale = coefficient[pairs, None]
                h = hidden[pairs].masked_fill(scale == 0, 0.0)
                draft = DraftLaw.of((h @ weight.T).to(wide))
                right[pairs] = draft.best == best[pairs]
                state = judge.rows.slot[pairs] - states.start
                losses[pairs], gradient = CRITERIA[judge.loss](target, state, draft)
                if of_weight is not None:
                    gradient = of_weight.narrow(gradient)
                    of_weight.add(gradient, (h * scale).to(h.dtype))
                if of_hidden is not None:
                    of_hidden[pairs] = (gradient.to(h.dtype) @ weight) * scale
        counts = coefficient != 0
        losses, right = losses * counts, right & counts
        ctx.gradients = of_hidden, None if of_weight is None else of_weight.flush()
        ctx.mark_non_differentiable(losses, right)
        return (losses * coefficient).sum(), losses, right

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Scales the gradients formed in the forward pass, in place, so it can run only once."""
        if ctx.gradients is None:
            raise RuntimeError("the gradients of head and loss are formed once; run forward again")
        (of_hidden, of_weight), ctx.gradients = ctx.gradients, None
        scale = grads[0]
        if of_weight is not None:
            of_weight.mul_(scale)
        return of_hidden.mul_(scale), of_weight, None, None, None


def head_loss(
    hidden: Tensor, weight: Tensor, coefficient: Tensor, judge: Judge
) -> tuple[Tensor, Tensor, Tensor]:
    """See ``HeadLoss.forward``."""
    learns = torch.is_grad_enabled()
    out: tuple[Tensor, Tensor, Tensor] = HeadLoss.apply(  # type: ignore[no-untyped-call]
        hidden, weight, coefficient, judge, learns
    )
    return out
