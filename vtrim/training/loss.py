"""Soft cross-entropy over the draft vocabulary, formed chunk by chunk with its gradient.

The [rows, k] logits never exist at once: a chunk's logits give the loss and, in the same pass,
the gradients of the hidden rows and of the head. Backward only scales them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_ROWS = 256


class SoftCrossEntropy(torch.autograd.Function):
    """Sum over rows of -sum_v p(v) log q(v), and how many rows' arg-max is the teacher's."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, teacher: Tensor, index: Tensor, best: Tensor
    ) -> tuple[Tensor, Tensor]:
        """hidden: [n, d] normed rows; weight: [k, d] head; teacher: [m, k] p over D.

        index: [n] row of ``teacher`` for each hidden row; best: [n] draft id of the teacher's
        arg-max (-1 where it lies outside D). Returns (loss sum, correct rows), fp32 and int64.
        """
        loss = hidden.new_zeros((), dtype=torch.float32)
        correct = torch.zeros((), dtype=torch.int64, device=hidden.device)
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight, dtype=torch.float32)
        for start in range(0, hidden.shape[0], CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            h, p = hidden[rows], teacher[index[rows]].float()
            logits = (h @ weight.T).float()
            correct += (logits.argmax(-1) == best[rows]).sum()
            log_z = logits.logsumexp(-1)
            loss += (p.sum(-1) * log_z).sum() - (p * logits).sum()
            # d/dlogits of -sum p log q = q * sum(p) - p
            grad = logits.sub_(log_z[:, None]).exp_().mul_(p.sum(-1, keepdim=True)).sub_(p)
            grad = grad.to(weight.dtype)
            grad_hidden[rows] = grad @ weight
            grad_weight += grad.T @ h
        ctx.save_for_backward(grad_hidden, grad_weight.to(weight.dtype))
        ctx.mark_non_differentiable(correct)
        return loss, correct

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Scales the gradients formed in the forward pass."""
        grad_hidden, grad_weight = ctx.saved_tensors
        scale = grads[0]
        return grad_hidden * scale.to(grad_hidden.dtype), grad_weight * scale, None, None, None


def soft_cross_entropy(
    hidden: Tensor, weight: Tensor, teacher: Tensor, index: Tensor, best: Tensor
) -> tuple[Tensor, Tensor]:
    """See ``SoftCrossEntropy.forward``."""
    loss, correct = SoftCrossEntropy.apply(hidden, weight, teacher, index, best)  # type: ignore[no-untyped-call]
    return loss, correct
