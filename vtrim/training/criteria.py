"""What a pair costs and the gradient of that cost by its logits.

Soft cross-entropy and KL are taken against p, the target's softmax renormalised on the draft
vocabulary D. The LK losses (arXiv:2602.23881) compare the draft's q with p~, the softmax over the
full vocabulary restricted to D: sum min(p~, q) is the probability that rejection sampling accepts
the draft's token. Everything here is fp32 (or wider).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vtrim.training.settings import Loss

ETA = 3.0  # decay of the KL share with acceptance, arXiv:2602.23881 section 4
TINY = 1e-30  # acceptance below this counts as this, so that its logarithm is finite


@dataclass(frozen=True)
class TargetLaw:
    """The target's law of s states. p: [s, k]; mass: [s] what the full softmax gives to D."""

    p: Tensor
    mass: Tensor

    @classmethod
    def of(cls, logits: Tensor, log_z: Tensor) -> TargetLaw:
        """logits: [s, k] over D; log_z: [s] log-sum-exp over the full vocabulary."""
        mass = (log_sum_exp(logits) - log_z).exp().clamp(max=1.0)
        return cls(logits.softmax(-1), mass)

    @cached_property
    def entropy(self) -> Tensor:
        """[s] entropy of p [nats]."""
        entropy: Tensor = torch.special.entr(self.p).sum(-1)
        return entropy


@dataclass(frozen=True)
class DraftLaw:
    """The draft's law. logits, q: [c, k]; log_z: [c] log-sum-exp; best: [c] arg-max."""

    logits: Tensor
    q: Tensor
    log_z: Tensor
    best: Tensor

    @classmethod
    def of(cls, logits: Tensor) -> DraftLaw:
        """logits: [c, k]."""
        q = logits.softmax(-1)
        top, best = logits.max(-1)
        # q at the arg-max is exp(top - log_z) and at least 1 / k
        return cls(logits, q, top - q.gather(-1, best[:, None])[:, 0].log(), best)

    def cross_entropy(self, p: Tensor) -> Tensor:
        """[c] -sum p log q."""
        loss: Tensor = self.log_z - torch.linalg.vecdot(p, self.logits)
        return loss


Criterion = Callable[[TargetLaw, Tensor, DraftLaw], tuple[Tensor, Tensor]]
"""(target, state [c] of each pair, draft) -> loss [c] and its gradient by the logits [c, k].

May write over the draft's law.
"""


def log_sum_exp(logits: Tensor) -> Tensor:
    """[..., k] -> [...]: torch's own is four times slower on a CPU."""
    top = logits.amax(-1, keepdim=True)
    return (logits - top).exp_().sum(-1).log_() + top[..., 0]


def soft_cross_entropy(target: TargetLaw, state: Tensor, draft: DraftLaw) -> tuple[Tensor, Tensor]:
    """-sum p log q; gradient q - p."""
    p = target.p[state]
    return draft.cross_entropy(p), draft.q.sub_(p)


def kl(target: TargetLaw, state: Tensor, draft: DraftLaw) -> tuple[Tensor, Tensor]:
    """KL(p || q): the cross-entropy without the part that the draft cannot change."""
    loss, gradient = soft_cross_entropy(target, state, draft)
    return loss - target.entropy[state], gradient


def lk_alpha(target: TargetLaw, state: Tensor, draft: DraftLaw) -> tuple[Tensor, Tensor]:
    """-log alpha, alpha = sum min(p~, q)."""
    alpha, gradient = _acceptance(target.p[state], target.mass[state], draft)
    return -alpha.log(), gradient.div_(-alpha[:, None])


def lk_lambda(target: TargetLaw, state: Tensor, draft: DraftLaw) -> tuple[Tensor, Tensor]:
    """Lambda KL + (1 - lambda) (1 - alpha), lambda = exp(-eta alpha) held constant."""
    p = target.p[state]
    divergence = draft.cross_entropy(p) - target.entropy[state]
    alpha, of_alpha = _acceptance(p, target.mass[state], draft)
    share = (-ETA * alpha).exp()
    loss = share * divergence + (1 - share) * (1 - alpha)
    of_kl = draft.q.sub_(p).mul_(share[:, None])
    return loss, of_kl.sub_(of_alpha.mul_((1 - share)[:, None]))


def _acceptance(p: Tensor, mass: Tensor, draft: DraftLaw) -> tuple[Tensor, Tensor]:
    """Acceptance [c] and its gradient [c, k]: q (1[q < p~] - sum of q where q < p~)."""
    reached = p * mass[:, None]
    alpha = torch.minimum(reached, draft.q).sum(-1).clamp(min=TINY)
    below = draft.q * (draft.q < reached)
    return alpha, below.addcmul_(draft.q, below.sum(-1, keepdim=True), value=-1)


CRITERIA: dict[Loss, Criterion] = {
    "soft-ce": soft_cross_entropy,
    "kl": kl,
    "lk-alpha": lk_alpha,
    "lk-lambda": lk_lambda,
}
