"""Head and loss in one pass over chunks of target states, the gradient formed on the way.

A chunk holds some of the target's states and all (row, unroll step) pairs they judge: the target's
logits over D are computed once for all steps, and neither they nor the draft's logits ever exist
for a whole batch. Backward only scales what the forward pass formed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vtrim.training.batch import Features, Rows
from vtrim.training.settings import Loss, OovPolicy

CHUNK_ELEMENTS = 1 << 22  # draft logits of one chunk

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
        """[n] 1 where a pair counts in the loss, 0 where its teacher's arg-max is not in D."""
        best = self.features.best_draft[self.rows.slot]
        return torch.ones_like(best) if self.oov == "keep" else (best >= 0).long()

    def chunks(self, k: int) -> Iterator[tuple[slice, slice]]:
        """Target states and the pairs they judge, few enough that logits stay small."""
        first = self.rows.first_row
        states, pairs = first.size - 1, max(1, CHUNK_ELEMENTS // k)
        low = 0
        while low < states:
            high = max(low + 1, int((first <= first[low] + pairs).sum()) - 1)
            yield slice(low, high), slice(int(first[low]), int(first[high]))
            low = high


class HeadLoss(torch.autograd.Function):
    """Weighted sum of the pairs' losses, each pair's loss, and whether its arg-max is right."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, coefficient: Tensor, judge: Judge
    ) -> tuple[Tensor, Tensor, Tensor]:
        """hidden: [n, d] normed rows; weight: [k, d] head; coefficient: [n] of each pair's loss.

        Returns the scalar sum of coefficient * loss, losses [n] fp32 and right [n] bool.
        """
        losses = hidden.new_zeros(hidden.shape[0], dtype=torch.float32)
        right = torch.zeros(hidden.shape[0], dtype=torch.bool, device=hidden.device)
        grad_hidden = torch.zeros_like(hidden)
        grad_weight = torch.zeros_like(weight, dtype=torch.float32)
        best = judge.features.best_draft[judge.rows.slot]
        for states, pairs in judge.chunks(weight.shape[0]):
            if pairs.start == pairs.stop:
                continue
            z = judge.teacher_logits(judge.features.hidden[states]).float()
            p = z.softmax(-1)[judge.rows.slot[pairs] - states.start]
            h = hidden[pairs]
            logits = (h @ weight.T).float()
            right[pairs] = logits.argmax(-1) == best[pairs]
            log_z = logits.logsumexp(-1)
            losses[pairs] = log_z - (p * logits).sum(-1)
            # d/dlogits of -sum p log q = q - p
            grad = logits.sub_(log_z[:, None]).exp_().sub_(p).mul_(coefficient[pairs, None])
            grad = grad.to(weight.dtype)
            grad_hidden[pairs] = grad @ weight
            grad_weight += grad.T @ h
        ctx.save_for_backward(grad_hidden, grad_weight.to(weight.dtype))
        ctx.mark_non_differentiable(losses, right)
        return (losses * coefficient).sum(), losses, right

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Scales the gradients formed in the forward pass."""
        grad_hidden, grad_weight = ctx.saved_tensors
        scale = grads[0]
        return grad_hidden * scale.to(grad_hidden.dtype), grad_weight * scale, None, None


def head_loss(
    hidden: Tensor, weight: Tensor, coefficient: Tensor, judge: Judge
) -> tuple[Tensor, Tensor, Tensor]:
    """See ``HeadLoss.forward``."""
    out: tuple[Tensor, Tensor, Tensor] = HeadLoss.apply(hidden, weight, coefficient, judge)  # type: ignore[no-untyped-call]
    return out
