"""The EAGLE-3 draft in plain torch (arXiv:2503.01840); module names are the portable layout's.

Shapes: B batch, T rows, d hidden size, k draft vocabulary, n_h query heads, n_kv key/value heads,
d_h head size. Row t pairs the target's states at position t with the embedding of token t+1 and
sits at RoPE position t.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vtrim.shape import DraftShape

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


class RMSNorm(nn.Module):
    """Root-mean-square norm; the variance is taken in fp32, the product in the input's dtype."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., d]."""
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * scaled.to(x.dtype)


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """RoPE in the half-split form. x: [B, heads, T, d_h]; positions: [B, T] or [1, T]."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = positions[:, None, :, None].float() * frequency
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class PairLinear(nn.Linear):
    """A projection of [embedding; hidden], or of one of them by its ``part`` of the columns.

    W [e; h] = W_e e + W_h h, and training needs W_e e of a token in many unroll steps.
    """

    def forward(self, x: Tensor, part: slice | None = None) -> Tensor:
        """x: [..., width of the part]."""
        if part is None:
            return F.linear(x, self.weight)
        out: Tensor = _LinearOfPart.apply(x, self.weight, part)  # type: ignore[no-untyped-call]
        return out


class _LinearOfPart(torch.autograd.Function):
    """x @ weight[:, part].T; keeps the weight itself, so that ZeRO-3 can take it away meanwhile."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, part: slice) -> Tensor:
        """x: [..., p]; weight: [o, w] -> [..., o]."""
        ctx.save_for_backward(x, weight)
        ctx.part = part
        return F.linear(x, weight[:, part])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        """Gradients of x and of the whole weight."""
        x, weight = ctx.saved_tensors
        grad = grads[0].flatten(0, -2)
        of_weight = torch.zeros_like(weight)
        of_weight[:, ctx.part] = grad.T @ x.flatten(0, -2)
        return grads[0] @ weight[:, ctx.part], of_weight, None


class Attention(nn.Module):
    """Projections of the draft's attention; who sees whom is the caller's business."""

    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        width = 2 * shape.hidden_size
        self.head_dim = shape.head_dim
        self.theta = shape.rope_theta
        query = shape.num_attention_heads * shape.head_dim
        key = shape.num_key_value_heads * shape.head_dim
        self.q_proj = PairLinear(width, query, bias=False)
        self.k_proj = PairLinear(width, key, bias=False)
        self.v_proj = PairLinear(width, key, bias=False)
        self.o_proj = nn.Linear(query, shape.hidden_size, bias=False)

    def heads(self, x: Tensor) -> Tensor:
        """[B, T, heads*d_h] -> [B, heads, T, d_h]."""
        heads: Tensor = x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        return heads

    def rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """Projected queries or keys [B, T, heads*d_h] -> [B, heads, T, d_h] with RoPE."""
        return rotate(self.heads(x), positions, self.theta)

    def queries(self, x: Tensor, positions: Tensor) -> Tensor:
        """x: [B, T, 2d] -> [B, n_h, T, d_h], rotated."""
        return self.rotated(self.q_proj(x), positions)

    def keys_values(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """x: [B, T, 2d] -> keys (rotated) and values, [B, n_kv, T, d_h] each."""
        return self.rotated(self.k_proj(x), positions), self.heads(self.v_proj(x))


class MLP(nn.Module):
    """Gated MLP with SiLU."""

    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., d]."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class MidLayer(nn.Module):
    """The draft's one decoder layer: attention over [embedding; hidden], then the MLP."""

    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        d, eps = shape.hidden_size, shape.rms_norm_eps
        self.self_attn = Attention(shape)
        self.mlp = MLP(d, shape.intermediate_size)
        self.input_layernorm = RMSNorm(d, eps)
        self.hidden_norm = RMSNorm(d, eps)
        self.post_attention_layernorm = RMSNorm(d, eps)

    def inputs(self, embeds: Tensor, hidden: Tensor) -> Tensor:
        """[B, T, d] and [B, T, d] -> [B, T, 2d], embedding first."""
        return torch.cat((self.input_layernorm(embeds), self.hidden_norm(hidden)), dim=-1)

    def finish(self, hidden: Tensor, context: Tensor) -> Tensor:
        """Residual around attention (un-normed ``hidden``), then around the MLP.

        hidden: [B, T, d]; context: [B, n_h, T, d_h]; returns the pre-norm h' [B, T, d].
        """
        residual = hidden + self.self_attn.o_proj(context.transpose(1, 2).flatten(2))
        out: Tensor = residual + self.mlp(self.post_attention_layernorm(residual))
        return out


class Head(nn.Linear):
    """The LM head over D; ``through`` says what is done with rows and weight.

    A fused loss goes through here, so that ZeRO-3 finds the weight in use by its own module.
    """

    def forward(self, hidden: Tensor, through: Callable[[Tensor, Tensor], Any] = F.linear) -> Any:
        """hidden: [..., d]; the default gives logits [..., k]."""
        return through(hidden, self.weight)


class Eagle3Draft(nn.Module):
    """EAGLE-3 head: fused target states and token embeddings in, draft logits over D out.

    The embedding table is the target's and is not part of the draft; ``vocab_ids`` [k] are the
    sorted target ids of the draft vocabulary.
    """

    vocab_ids: Tensor

    def __init__(self, shape: DraftShape, vocab_ids: Tensor) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(3 * shape.target_hidden_size, shape.hidden_size, bias=False)
        self.midlayer = MidLayer(shape)
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.lm_head = Head(shape.hidden_size, vocab_ids.numel(), bias=False)
        self.register_buffer("vocab_ids", vocab_ids.clone(), persistent=False)

    def fuse(self, aux: Tensor) -> Tensor:
        """Low, mid and high target states [B, T, 3d] -> g [B, T, d]; first draft step only."""
        out: Tensor = self.fc(aux)
        return out

    def step(self, embeds: Tensor, hidden: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """One pass of the layer over T rows; returns the pre-norm h' [B, T, d] that is fed back.

        embeds: [B, T, d] embedding of token t+1; hidden: [B, T, d] g_t or the previous h';
        positions: [B, T]; attend(q, k, v) gives the context [B, n_h, T, d_h].
        """
        layer = self.midlayer
        x = layer.inputs(embeds, hidden)
        keys, values = layer.self_attn.keys_values(x, positions)
        context = attend(layer.self_attn.queries(x, positions), keys, values)
        return layer.finish(hidden, context)

    def logits(self, hidden: Tensor) -> Tensor:
        """Pre-norm h' [..., d] -> draft logits [..., k]."""
        out: Tensor = self.lm_head(self.norm(hidden))
        return out
