"""Attention of a few rows over a cache, in scaled_dot_product_attention's fastest forms.

Shapes: B batch, T rows, S columns, n_h query heads, n_kv key/value heads, d_h head size,
g = n_h / n_kv.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


class Sight:
    """Which columns each row attends to, prepared once a forward for all blocks.

    Query heads that share a key head become rows of one head, so that keys are read once; the
    mask is repeated for them and made additive here, not again in each block.
    """

    def __init__(self, mask: Tensor | None, groups: int) -> None:
        """mask: bool [B, 1, T, S], True = attends; None is causal behind what the cache holds."""
        self.groups = groups
        self._given = mask
        self._mask: Tensor | None = None

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """queries: [B, T, n_h, d_h]; keys, values: [B, n_kv, S, d_h] -> [B, T, n_h*d_h]."""
        rows, columns = queries.shape[1], keys.shape[2]
        if self._given is None and rows == columns and rows > 1:
            context = F.scaled_dot_product_attention(
                queries.transpose(1, 2), keys, values, is_causal=True, scale=scale, enable_gqa=True
            )
            return context.transpose(1, 2).flatten(2)
        if self._mask is None and (rows > 1 or self._given is not None):
            self._mask = self._additive(rows, columns, queries)
        batch, _, heads, size = queries.shape
        shared = heads // self.groups
        packed = queries.view(batch, rows, shared, self.groups, size).permute(0, 2, 3, 1, 4)
        packed = packed.reshape(batch, shared, self.groups * rows, size)
        context = F.scaled_dot_product_attention(
            packed, keys, values, attn_mask=self._mask, scale=scale
        )
        context = context.view(batch, shared, self.groups, rows, size).permute(0, 3, 1, 2, 4)
        return context.reshape(batch, rows, heads * size)

    def _additive(self, rows: int, columns: int, like: Tensor) -> Tensor:
        """[B or 1, 1, g*T, S]: 0 where a row attends, else the dtype's lowest number.

        (Not -inf: a row of padding may attend to nothing, and its NaN would stay in the cache.)
        """
        hidden = torch.finfo(like.dtype).min
        if self._given is None:
            mask = like.new_full((1, 1, rows, columns), hidden).triu(columns - rows + 1)
        else:
            mask = torch.zeros_like(self._given, dtype=like.dtype)
            mask.masked_fill_(~self._given, hidden)
        return mask.repeat(1, 1, self.groups, 1)
