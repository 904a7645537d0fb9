"""An EAGLE-3 draft's forward for decoding: packed weights, fused products, one rotation a step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from vtrim.models.draft import Attend, Eagle3Draft, RMSNorm
from vtrim.models.lean_blocks import Rope, fused, rotated
from vtrim.models.lean_check import TOLERANCE, relative_error
from vtrim.models.lean_linear import cannot_pack

_ROWS = 4  # of the check at load


def fast_draft(draft: Eagle3Draft, note: Callable[[str], None]) -> Eagle3Draft:
    """The draft with a lean forward on the same weights, or itself, which ``note`` is told."""
    if isinstance(draft, LeanDraft):
        return draft
    weight = draft.lm_head.weight
    size = sum(w.numel() * w.element_size() for w in draft.parameters())
    lean = LeanDraft(draft, pack=cannot_pack(weight, size) is None)
    error = _difference(draft, lean)
    if not error <= TOLERANCE.get(weight.dtype, 0.0):
        note(
            f"the draft is decoded through its training forward: a lean one differs by {error:.1e}."
        )
        return draft
    return lean


class LeanDraft(Eagle3Draft):
    """The modules of a draft behind another forward; for inference only."""

    def __init__(self, draft: Eagle3Draft, *, pack: bool) -> None:
        torch.nn.Module.__init__(self)
        vars(self).update(vars(draft))  # the same modules: nothing is loaded twice
        layer = draft.midlayer
        attention, mlp = layer.self_attn, layer.mlp
        self._rotated_heads = draft.shape.num_attention_heads + draft.shape.num_key_value_heads
        self._fc = fused([draft.fc], pack=pack)
        self._qkv = fused([attention.q_proj, attention.k_proj, attention.v_proj], pack=pack)
        self._out = fused([attention.o_proj], pack=pack)
        self._gate_up = fused([mlp.gate_proj, mlp.up_proj], pack=pack)
        self._down = fused([mlp.down_proj], pack=pack)
        self._head = fused([draft.lm_head], pack=pack)
        half = attention.head_dim // 2
        steps = torch.arange(half, device=draft.fc.weight.device, dtype=torch.float32)
        frequency = attention.theta ** (-steps / half)
        self._frequency = torch.cat((frequency, frequency))
        self._sign = torch.cat((-torch.ones_like(steps), torch.ones_like(steps)))

    def fuse(self, aux: Tensor) -> Tensor:
        """Low, mid and high target states [B, T, 3d] -> g [B, T, d]."""
        return self._fc(aux)

    def step(self, embeds: Tensor, hidden: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """One pass of the layer over T rows, see ``Eagle3Draft.step``."""
        layer, shape = self.midlayer, self.shape
        x = torch.cat(
            (_normed(layer.input_layernorm, embeds), _normed(layer.hidden_norm, hidden)), -1
        )
        heads = self._qkv(x).view(*x.shape[:2], -1, shape.head_dim)
        turned = rotated(heads[:, :, : self._rotated_heads], self._rope(positions, x.dtype))
        queries = turned[:, :, : shape.num_attention_heads].transpose(1, 2)
        keys = turned[:, :, shape.num_attention_heads :].transpose(1, 2)
        context = attend(queries, keys, heads[:, :, self._rotated_heads :].transpose(1, 2))
        stream = hidden + self._out(context.transpose(1, 2).flatten(2))
        gate, up = self._gate_up(_normed(layer.post_attention_layernorm, stream)).chunk(2, dim=-1)
        return stream + self._down(F.silu(gate).mul_(up))

    def logits(self, hidden: Tensor) -> Tensor:
        """Pre-norm h' [..., d] -> draft logits [..., k]."""
        return self._head(_normed(self.norm, hidden))

    def _rope(self, positions: Tensor, dtype: torch.dtype) -> Rope:
        """Cosine and signed sine [B, T, 1, d_h] of positions [B, T]."""
        angle = positions[:, :, None, None] * self._frequency
        return angle.cos().to(dtype), (angle.sin() * self._sign).to(dtype)


def _normed(norm: RMSNorm, x: Tensor) -> Tensor:
    return F.rms_norm(x, norm.weight.shape, norm.weight, norm.eps)


@torch.inference_mode()
def _difference(draft: Eagle3Draft, lean: Eagle3Draft) -> float:
    """Largest relative error of a row of states or logits, over a few rows of random numbers."""
    weight, shape = draft.fc.weight, draft.shape
    random = torch.Generator().manual_seed(0)

    def rows(size: int) -> Tensor:
        return torch.randn(1, _ROWS, size, generator=random).to(weight)

    def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(
            queries, keys, values, is_causal=True, enable_gqa=True
        )

    aux, embeds = rows(3 * shape.target_hidden_size), rows(shape.hidden_size)
    positions = torch.arange(7, 7 + _ROWS, device=weight.device)[None]
    states = [d.step(embeds, d.fuse(aux), positions, attend) for d in (draft, lean)]
    logits = [d.logits(states[0]) for d in (draft, lean)]
    errors = torch.tensor([relative_error(*states), relative_error(*logits)])
    return float(errors.max())  # NaN wins
