"""Jensen-Shannon divergence in nats, in fp32 from log-probabilities, safe where one is 0."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Stands for log 0: exp gives 0, and 0 times it is 0, where 0 times -inf would be NaN.
LOG_ZERO = -1e30
# Columns worked on at a time on a CPU: the temporaries stay in the cache.
CPU_COLUMNS = 16384
_TINY = torch.finfo(torch.float32).tiny


def js(log_p: Tensor, log_q: Tensor) -> Tensor:
    """JS(p, q) = (KL(p, m) + KL(q, m)) / 2 with m = (p + q) / 2 [nats], 0 to ln 2.

    log_p: [..., V], log_q: the same or [V] for all; -inf where the probability is 0.
    """
    width = CPU_COLUMNS if log_p.device.type == "cpu" else log_p.shape[-1]
    parts = zip(log_p.split(width, -1), log_q.split(width, -1), strict=True)
    total = torch.stack([_twice_js(p, q) for p, q in parts]).sum(0)
    return total.mul_(0.5).clamp_(min=0.0)


def _twice_js(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Sum over these columns of p log(p / m) + q log(q / m)."""
    log_p, log_q = log_p.clamp(min=LOG_ZERO), log_q.clamp(min=LOG_ZERO)
    p, q = log_p.exp(), log_q.exp()
    log_m = (p + q).mul_(0.5).clamp_(min=_TINY).log_()
    total = log_p.sub_(log_m).mul_(p).sum(-1)
    return total + torch.sub(log_q, log_m, out=log_m).mul_(q).sum(-1)


def js_trimmed(log_q: Tensor, log_p: Tensor, vocab_ids: Tensor) -> Tensor:
    """JS(q, p) of a draft law q over k kept ids and a law p over the whole vocabulary [nats].

    Outside the kept ids q is 0, and each p(v) there adds p(v) / 2 * ln 2: only the mass outside
    matters. So JS is at least that mass / 2 * ln 2. log_q: [k]; log_p: [V]; vocab_ids: [k].
    """
    if vocab_ids.numel() == log_p.numel():
        return js(log_q, log_p)
    inside = log_p[vocab_ids]
    outside = (log_p.exp().sum() - inside.exp().sum()).clamp(min=0.0)
    return js(log_q, inside) + outside * (math.log(2) / 2)
