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


def reference_step(
    w: dict[str, Tensor],
    cfg: Any,
    kept: list[int],
    samples: list[tuple[list[int], list[int]]],
    teacher: list[Tensor],
    aux: list[Tensor],
    table: Tensor,
    steps: int,
    decay: float,
    alignment: str,
) -> tuple[Tensor, list[Tensor]]:
    """Total loss and the loss of each TTT step.

    samples: (ids, mask); teacher: [T, V] target logits; aux: [T, 3d]; table: [V, d] embeddings.
    """
    sums = [torch.zeros(()) for _ in range(steps)]
    counts = [0] * steps
    for (ids, mask), z, states in zip(samples, teacher, aux, strict=True):
        n = len(ids)
        fused = [w["fc.weight"] @ states[t] for t in range(n)]
        for t in range(n - 1):
            seen: list[Any] = []
            for s in range(t):
                _, pair = layer(w, cfg, table[ids[s + 1]], fused[s], s, [])
                seen.append(pair)
            hidden = fused[t]
            for i in range(steps):
                if t + 1 + i >= n:
                    break
                hidden, pair = layer(w, cfg, table[ids[t + 1 + i]], hidden, t + i, seen)
                seen.append(pair)
                if not trained_rows(mask, t, i, alignment):
                    continue
                counts[i] += 1
                logits = z[t + 1 + i]
                if int(logits.argmax()) not in kept:
                    continue
                p = torch.softmax(logits[kept], 0)
                out = rms(hidden, w["norm.weight"], cfg.rms_norm_eps)
                q = torch.log_softmax(w["lm_head.weight"] @ out, 0)
                sums[i] = sums[i] - (p * q).sum()
    losses = [total / max(1, count) for total, count in zip(sums, counts, strict=True)]
    return sum(decay**i * loss for i, loss in enumerate(losses)), losses
