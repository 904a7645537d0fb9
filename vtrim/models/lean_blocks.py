"""One decoder block of a Llama-like model in few operators: fused qkv and gate/up products.

Shapes: B batch, T rows, S cached columns, d hidden size, n_h query heads, n_kv key/value heads,
d_h head size, g = n_h / n_kv query heads a key head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vtrim.models.lean_linear import Product, product

Rope = tuple[Tensor, Tensor]
"""Cosine and signed sine of the rows' positions, [B, T, 1, rotated size] each."""


class Norm:
    """Root-mean-square norm over the last dimension, the variance in fp32."""

    def __init__(self, module: Any) -> None:
        self.weight: Tensor = module.weight.detach()
        self.eps = float(module.variance_epsilon)

    def __call__(self, x: Tensor) -> Tensor:
        """x: [..., d]."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Block:
    """Weights of one decoder block; attention itself lies between ``enter`` and ``leave``."""

    def __init__(self, layer: Any, *, pack: bool) -> None:
        attention = layer.self_attn
        self.head_dim = int(attention.head_dim)
        self.scale = float(attention.scaling)
        self.before_attention = Norm(layer.input_layernorm)
        self.before_mlp = Norm(layer.post_attention_layernorm)
        qkv, out, _, _ = linears = linears_of(layer)
        self.qkv, self.out, self.gate_up, self.down = (fused(m, pack=pack) for m in linears)
        self.num_heads = out[0].in_features // self.head_dim
        rows = sum(linear.out_features for linear in qkv) // self.head_dim  # n_h + 2 n_kv
        self.num_rotated = (rows + self.num_heads) // 2  # n_h + n_kv
        self.head_norms = _head_norms(attention, self.num_heads, self.num_rotated)

    def enter(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor]:
        """The residual stream [B, T, d] -> queries [B, T, n_h, d_h], keys and values alike."""
        heads = self.qkv(self.before_attention(x)).view(*x.shape[:2], -1, self.head_dim)
        turned, values = heads[:, :, : self.num_rotated], heads[:, :, self.num_rotated :]
        if self.head_norms is not None:
            weight, eps = self.head_norms
            turned = F.rms_norm(turned, (self.head_dim,), None, eps) * weight
        turned = rotated(turned, rope)
        return turned[:, :, : self.num_heads], turned[:, :, self.num_heads :], values

    def leave(self, x: Tensor, context: Tensor) -> Tensor:
        """Residual stream [B, T, d] and attention's context [B, T, n_h*d_h] -> the next stream."""
        x = x + self.out(context)
        gate, up = self.gate_up(self.before_mlp(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate).mul_(up))


def rotated(x: Tensor, rope: Rope) -> Tensor:
    """RoPE in the half-split form on the first ``rotated size`` features. x: [B, T, heads, d_h]."""
    cos, sin = rope
    size = cos.shape[-1]
    part = x[..., :size]
    # The sign of the swapped half lies in the sine.
    turned = torch.addcmul(part * cos, part.roll(size // 2, -1), sin)
    return turned if size == x.shape[-1] else torch.cat((turned, x[..., size:]), dim=-1)


def rope_of(rotary: Any, x: Tensor, position_ids: Tensor) -> Rope:
    """The model's own rotary module at position_ids [B, T], in the form ``rotated`` takes."""
    cos, sin = rotary(x, position_ids=position_ids)
    low, high = sin.chunk(2, dim=-1)
    return cos[:, :, None], torch.cat((-low, high), dim=-1)[:, :, None]


def linears_of(layer: Any) -> tuple[list[nn.Linear], ...]:
    """The layers whose rows make up qkv, attention's output, gate/up and the MLP's output."""
    attention, mlp = layer.self_attn, layer.mlp
    if hasattr(attention, "qkv_proj"):  # Phi-3 stores them fused
        qkv, gate_up = [attention.qkv_proj], [mlp.gate_up_proj]
    else:
        qkv = [attention.q_proj, attention.k_proj, attention.v_proj]
        gate_up = [mlp.gate_proj, mlp.up_proj]
    return qkv, [attention.o_proj], gate_up, [mlp.down_proj]


def _head_norms(attention: Any, num_heads: int, num_rotated: int) -> tuple[Tensor, float] | None:
    """Qwen3's norms of each query and key head: factors [n_h + n_kv, d_h] and epsilon."""
    if not hasattr(attention, "q_norm"):
        return None
    query, key = Norm(attention.q_norm), Norm(attention.k_norm)
    weights = [query.weight] * num_heads + [key.weight] * (num_rotated - num_heads)
    return torch.stack(weights), query.eps


def fused(linears: Sequence[nn.Linear], *, pack: bool) -> Product:
    """One product with the rows of several layers; unpacked, the layers become views of it."""
    if len(linears) == 1:
        (only,) = linears
        bias = None if only.bias is None else only.bias.detach()
        return product(only.weight.detach(), bias, pack=pack)
    weight = torch.cat([linear.weight.detach() for linear in linears])
    biases = [linear.bias for linear in linears]
    bias = None if biases[0] is None else torch.cat([b.detach() for b in biases])
    if not pack:  # a packed copy is arranged otherwise: the layers keep their own weights
        parts = weight.split([linear.out_features for linear in linears])
        for linear, part in zip(linears, parts, strict=True):
            linear.weight = nn.Parameter(part, requires_grad=False)
    return product(weight, bias, pack=pack)
