"""The training step of MATH.md section 5 in plain loops, one sample and one row at a time.

Written from the formulas, sharing no code with ``vtrim.training``: own RMSNorm, own rotary
embedding, own visibility rule, teacher logits from the target model's own forward.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * (x / torch.sqrt((x * x).mean() + eps))


def rope(x: Tensor, position: int, theta: float) -> Tensor:
    """x: [heads, d_h]; pairs (j, j + d_h/2) are turned by position * theta^(-2j/d_h)."""
    half = x.shape[-1] // 2
    out = x.clone()
    for j in range(half):
        angle = position * theta ** (-2 * j / x.shape[-1])
        c, s = math.cos(angle), math.sin(angle)
        out[:, j] = x[:, j] * c - x[:, j + half] * s
        out[:, j + half] = x[:, j + half] * c + x[:, j] * s
    return out


def layer(
    w: dict[str, Tensor], cfg: Any, embed: Tensor, hidden: Tensor, pos: int, seen: list[Any]
) -> Any:
    """One row through the draft layer; ``seen`` are (key, value) pairs visible before this row."""
    eps = cfg.rms_norm_eps
    x = torch.cat(
        [
            rms(embed, w["midlayer.input_layernorm.weight"], eps),
            rms(hidden, w["midlayer.hidden_norm.weight"], eps),
        ]
    )
    p = "midlayer.self_attn."
    size = cfg.head_dim
    q = rope((w[p + "q_proj.weight"] @ x).view(-1, size), pos, cfg.rope_theta)
    k = rope((w[p + "k_proj.weight"] @ x).view(-1, size), pos, cfg.rope_theta)
    v = (w[p + "v_proj.weight"] @ x).view(-1, size)
    pairs = [*seen, (k, v)]
    group = cfg.num_attention_heads // cfg.num_key_value_heads
    heads = []
    for h in range(cfg.num_attention_heads):
        scores = torch.stack([q[h] @ key[h // group] / math.sqrt(size) for key, _ in pairs])
        share = torch.softmax(scores, 0)
        heads.append(sum(a * value[h // group] for a, (_, value) in zip(share, pairs, strict=True)))
    h = hidden + w[p + "o_proj.weight"] @ torch.cat(heads)
    y = rms(h, w["midlayer.post_attention_layernorm.weight"], eps)
    gate = w["midlayer.mlp.gate_proj.weight"] @ y
    up = w["midlayer.mlp.up_proj.weight"] @ y
    return h + w["midlayer.mlp.down_proj.weight"] @ (gate * torch.sigmoid(gate) * up), (k, v)


def trained_rows(mask: list[int], t: int, i: int, alignment: str) -> bool:
    n = len(mask)
    if alignment == "eagle":
        return t + 1 + i < n and bool(mask[t + i])
    return t + 2 + i < n and all(mask[t + 1 : t + 3 + i])


def reference_logits(
    w: dict[str, Tensor],
    cfg: Any,
    samples: list[tuple[list[int], list[int]]],
    aux: list[Tensor],
    table: Tensor,
    steps: int,
) -> dict[tuple[int, int, int], Tensor]:
    """Draft logits [k] of (sample, row t, step i), wherever the target judges them.

    samples: (ids, mask); aux: [T, 3d]; table: [V, d] embeddings.
    """
    found = {}
    for number, ((ids, _), states) in enumerate(zip(samples, aux, strict=True)):
        n = len(ids)
        fused = [w["fc.weight"] @ states[t] for t in range(n)]
        first: list[Any] = []  # keys and values of step 0
        for t in range(n - 1):
            seen, hidden = list(first), fused[t]
            for i in range(min(steps, n - 1 - t)):
                hidden, pair = layer(w, cfg, table[ids[t + 1 + i]], hidden, t + i, seen)
                seen.append(pair)
                if i == 0:
                    first.append(pair)
                out = rms(hidden, w["norm.weight"], cfg.rms_norm_eps)
                found[number, t, i] = w["lm_head.weight"] @ out
    return found


def pair_loss(kind: str, z: Tensor, kept: list[int], q: Tensor) -> Tensor:
    """Loss of one row. z: [V] target logits; q: [k] the draft's law."""
    p, full = torch.softmax(z[kept], 0), torch.softmax(z, 0)[kept]
    acceptance = torch.minimum(full, q).sum()
    divergence = (p * (p.log() - q.log())).sum()
    share = torch.exp(-3 * acceptance.detach())
    return {
        "soft-ce": -(p * q.log()).sum(),
        "kl": divergence,
        "lk-alpha": -acceptance.log(),
        "lk-lambda": share * divergence + (1 - share) * (1 - acceptance),
    }[kind]


def reference_loss(
    found: dict[tuple[int, int, int], Tensor],
    kept: list[int],
    samples: list[tuple[list[int], list[int]]],
    teacher: list[Tensor],
    steps: int,
    decay: float,
    alignment: str = "exact",
    divisor: str = "rows",
    oov: str = "drop",
    loss: str = "soft-ce",
) -> Tensor:
    """The total loss. found: from ``reference_logits``; teacher: [T, V] target logits."""
    total = torch.zeros(())
    for i in range(steps):
        summed, rows = torch.zeros(()), 0
        for number, (ids, mask) in enumerate(samples):
            for t in range(len(ids)):
                if not trained_rows(mask, t, i, alignment):
                    continue
                rows += 1
                z = teacher[number][t + 1 + i]
                if oov == "drop" and int(z.argmax()) not in kept:
                    continue
                q = torch.softmax(found[number, t, i], 0)
                summed = summed + pair_loss(loss, z, kept, q)
        if divisor == "bt":
            rows = sum(len(ids) for ids, _ in samples)
        total = total + decay**i * summed / max(1, rows)
    return total
