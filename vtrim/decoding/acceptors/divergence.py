"""Jensen-Shannon divergence in nats, in fp32 from log-probabilities, safe where one is 0."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Stands for log 0. Its exp is a normal fp32 number, far below what any sum over a vocabulary shows,
# so that the quotient of two probabilities neither overflows nor is 0 / 0.
LOG_ZERO = -87.0
# Columns worked on at a time on a CPU: the temporaries stay in the cache.
CPU_COLUMNS = 16384
_LN_2 = math.log(2)


def js(log_p: Tensor, log_q: Tensor) -> Tensor:
    """JS(p, q) = (KL(p, m) + KL(q, m)) / 2 with m = (p + q) / 2 [nats], 0 to ln 2.

    log_p: [..., V], log_q: the same or [V] for all; -inf where the probability is 0.
    """
    width = CPU_COLUMNS if log_p.device.type == "cpu" else log_p.shape[-1]
    parts = zip(log_p.split(width, -1), log_q.split(width, -1), strict=True)
    twice = torch.stack([_twice_js(p, q) for p, q in parts]).sum(0)
    return (twice / 2).clamp_(min=0.0)


def _twice_js(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Sum over these columns of p log(p / m) + q log(q / m), by two exponentials' work a column.

    With r = log(p / q) and g = log(m / q) = log((1 + e^r) / 2) it is q (e^r (r - g) - g).
    """
    log_q = log_q.clamp(min=LOG_ZERO)
    r = log_p.clamp(min=LOG_ZERO).sub_(log_q)
    quotient = r.exp()
    g = quotient.log1p().sub_(_LN_2)
    return r.sub_(g).mul_(quotient).sub_(g).mul_(log_q.exp_()).sum(-1)


def js_trimmed(log_q: Tensor, log_p: Tensor, vocab_ids: Tensor) -> Tensor:
    """JS(q, p) of draft laws q over k kept ids and laws p over the whole vocabulary [nats].

    Outside the kept ids q is 0, and each p(v) there adds p(v) / 2 * ln 2: only the mass outside
    matters. So JS is at least that mass / 2 * ln 2. log_q: [..., k]; log_p: [..., V];
    vocab_ids: [k].
    """
    if vocab_ids.numel() == log_p.shape[-1]:
        return js(log_q, log_p)
    inside = log_p[..., vocab_ids]
    outside = (1 - inside.exp().sum(-1)).clamp(min=0.0)
    return js(log_q, inside) + outside * (_LN_2 / 2)
