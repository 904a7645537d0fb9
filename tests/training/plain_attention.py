"""Attention of an unroll step with every score in one tensor: what the fast paths must equal."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def plain_attention(
    query: Tensor,
    first: tuple[Tensor, Tensor],
    own: Sequence[tuple[Tensor, Tensor]],
    position: Tensor,
    start: Tensor,
) -> Tensor:
    """Context [1, n_h, R, d_h]. position, start: [R] last and first step-0 key each row sees."""
    share = query.shape[1] // first[0].shape[1]
    keys, values = (x.repeat_interleave(share, dim=1) for x in first)
    length = keys.shape[2]
    key = torch.arange(length, device=query.device)
    seen = (key <= position[:, None]) & (key >= start[:, None])
    scores = (query @ keys.mT).masked_fill(~seen, float("-inf"))
    spread = [tuple(x.repeat_interleave(share, dim=1) for x in pair) for pair in own]
    diagonal = [(query * k).sum(-1, keepdim=True) for k, _ in spread]
    weights = (torch.cat([scores, *diagonal], -1) * query.shape[-1] ** -0.5).softmax(-1)
    context = weights[..., :length] @ values
    for j, (_, v) in enumerate(spread):
        context = context + weights[..., length + j, None] * v
    return context
