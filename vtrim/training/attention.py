"""Attention of one unroll step: causal over step 0, then the rows' own later keys.

Row t at step i sees the step-0 keys of its document up to t and its own keys of steps 1..i. The
first part is ordinary causal attention; each of the others is one score a row (a diagonal). The
parts are merged by their log-sum-exp, so nothing of rows x tokens is kept from step to step.

Shapes: R rows, N tokens, n_h query heads in n_kv groups of g, d_h head size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vtrim.training.batch import Block, Rows, to_device

KeysValues = tuple[Tensor, Tensor]
Attend = Callable[[Tensor, KeysValues, Sequence[KeysValues]], Tensor]
"""attend(query [1, n_h, R, d_h], keys and values of step 0 [1, n_kv, N, d_h], the rows' own of
steps 1..i [1, n_kv, R, d_h]) -> context [1, n_h, R, d_h]."""


def attention_of(rows: Rows) -> Attend:
    """The attention over a micro-batch, the same at every unroll step."""
    if rows.ids.device.type == "cuda":
        return partial(flex_attention, mask=flex_mask(rows), kernel=_compiled_flex())
    return partial(blocked_attention, rows=rows)


def blocked_attention(
    query: Tensor, first: KeysValues, own: Sequence[KeysValues], rows: Rows
) -> Tensor:
    """Plain torch: walks ``rows.blocks``, keeps outputs and log-sum-exp, recomputes the scores."""
    keys, values = first[0][0], first[1][0]
    q = query[0].unflatten(0, (keys.shape[0], -1)) * query.shape[-1] ** -0.5
    diagonals = [k[0] for k, _ in own] + [v[0] for _, v in own]
    args = (q, keys, values, rows.position[0], rows.blocks, *diagonals)
    context: Tensor = _Blocked.apply(*args)  # type: ignore[no-untyped-call]
    return context.flatten(0, 1)[None]


class _Blocked(torch.autograd.Function):
    """Softmax and all sums over keys and blocks are fp32 (or wider).

    q: [n_kv, g, R, d_h] scaled; keys, values: [n_kv, N, d_h]; own: i keys, then i values,
    [n_kv, R, d_h] each.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        position: Tensor,
        blocks: Sequence[Block],
        *own: Tensor,
    ) -> Tensor:
        """The context [n_kv, g, R, d_h]."""
        # laid out as the output projection reads it: no copy there
        out = torch.empty_like(q.permute(2, 0, 1, 3), memory_format=torch.contiguous_format)
        out = out.permute(1, 2, 0, 3)
        lse = torch.empty(q.shape[:3], dtype=_wide(q), device=q.device)
        for block in blocks:
            view = _BlockView(block, q, position, keys, values, own)
            scores, diagonal = view.scores()
            top = torch.cat((scores.amax(-1)[None], diagonal)).amax(0)
            p = scores.sub_(top[..., None]).exp_()
            p_own = diagonal.sub_(top).exp_()
            total = p.sum(-1) + p_own.sum(0)
            context = view.grouped(view.flat(p.to(q.dtype)) @ view.values)
            context = context + (p_own[..., None] * view.own_values[:, :, None]).sum(0)
            out[:, :, view.rows] = context / total[..., None]
            lse[:, :, view.rows] = top + total.log()
        ctx.blocks = blocks
        ctx.save_for_backward(q, keys, values, position, out, lse, *own)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        """Gradients of q, keys, values and each own key and value."""
        q, keys, values, position, out, lse, *own = ctx.saved_tensors
        grad_q = torch.empty_like(q)
        grad_keys, grad_values = (torch.zeros_like(x, dtype=_wide(q)) for x in (keys, values))
        grad_own = [torch.empty_like(x) for x in own]
        for block in ctx.blocks:
            view = _BlockView(block, q, position, keys, values, own)
            go = grad[:, :, view.rows]
            wide = go.to(lse.dtype)
            delta = (wide * out[:, :, view.rows]).sum(-1)
            scores, diagonal = view.scores()
            p = scores.sub_(lse[:, :, view.rows, None]).exp_()
            grad_values[:, view.keys_at] += view.flat(p.to(q.dtype)).mT @ view.flat(go)
            ds = view.grouped((view.flat(go) @ view.values.mT).to(p.dtype))
            ds = view.flat(ds.sub_(delta[..., None]).mul_(p).to(q.dtype))
            grad_keys[:, view.keys_at] += ds.mT @ view.flat(view.q)
            into_q = view.grouped((ds @ view.keys).to(p.dtype))
            if own:
                p_own = diagonal.sub_(lse[:, :, view.rows]).exp_()[..., None]
                dp = (wide * view.own_values[:, :, None]).sum(-1, keepdim=True)
                ds_own = p_own * (dp - delta[..., None])
                into_q = into_q + (ds_own * view.own_keys[:, :, None]).sum(0)
                both = torch.cat(((ds_own * view.q).sum(2), (p_own * wide).sum(2)))
                for whole, part in zip(grad_own, both, strict=True):
                    whole[:, view.rows] = part
            grad_q[:, :, view.rows] = into_q
        dtype = keys.dtype
        return grad_q, grad_keys.to(dtype), grad_values.to(dtype), None, None, *grad_own


class _BlockView:
    """One block's part of the tensors; r rows that see s keys of step 0."""

    def __init__(
        self,
        block: Block,
        q: Tensor,
        position: Tensor,
        keys: Tensor,
        values: Tensor,
        own: Sequence[Tensor],
    ) -> None:
        self.block, self.rows = block, slice(block.row, block.row_end)
        self.keys_at = slice(block.key, block.key_end)
        self.q = q[:, :, self.rows]  # [n_kv, g, r, d_h]
        self.position = position[self.rows]
        self.keys, self.values = keys[:, self.keys_at], values[:, self.keys_at]  # [n_kv, s, d_h]
        empty = q.new_empty((0, q.shape[0], self.position.numel(), q.shape[-1]))
        half = len(own) // 2
        stacked = torch.stack([x[:, self.rows] for x in own]) if own else empty
        wide = stacked.to(_wide(q))
        self.own_keys, self.own_values = wide[:half], wide[half:]  # [i, n_kv, r, d_h]

    def flat(self, x: Tensor) -> Tensor:
        """[n_kv, g, r, w] -> [n_kv, g*r, w]."""
        return x.reshape(x.shape[0], -1, x.shape[-1])

    def grouped(self, x: Tensor) -> Tensor:
        """[n_kv, g*r, w] -> [n_kv, g, r, w]."""
        return x.view(*self.q.shape[:3], x.shape[-1])

    def scores(self) -> tuple[Tensor, Tensor]:
        """Against the step-0 keys [n_kv, g, r, s] and the own keys [i, n_kv, g, r], fp32."""
        wide = _wide(self.q)
        scores = self.grouped((self.flat(self.q) @ self.keys.mT).to(wide))
        block = self.block
        if block.sure < block.key_end:
            key = torch.arange(block.sure, block.key_end, device=self.q.device)
            hidden = key > self.position[:, None]
            scores[..., block.sure - block.key :].masked_fill_(hidden, float("-inf"))
        return scores, (self.q * self.own_keys[:, :, None]).sum(-1)


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


_TILE = 128  # rows and keys of a tile of the block mask


def flex_mask(rows: Rows) -> Any:
    """The block mask of the step-0 part: a row's own document, up to its own position.

    Which tiles are seen is told from the blocks on the host: nothing has rows x tokens elements.
    """
    from torch.nn.attention.flex_attention import BlockMask

    position = rows.position[0]
    start = rows.start[0, position]

    def sees(_batch: Tensor, _head: Tensor, row: Tensor, key: Tensor) -> Tensor:
        return (key <= position[row]) & (key >= start[row])

    part, whole = (_ordered(table, position.device) for table in _tiles(rows))
    lengths = position.numel(), rows.length
    return BlockMask.from_kv_blocks(
        *part, *whole, BLOCK_SIZE=_TILE, mask_mod=sees, seq_lengths=lengths
    )


def _tiles(rows: Rows) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """[row tiles, key tiles] where some keys are seen by some rows, and where all by all."""
    count = rows.position.shape[1]
    seen = np.zeros((-(-count // _TILE), -(-rows.length // _TILE)), dtype=np.bool_)
    whole = np.ones_like(seen)
    whole[count // _TILE :] = False  # the last rows fill no tile
    for block in rows.blocks:
        at = slice(block.row // _TILE, -(-block.row_end // _TILE))
        seen[at, block.key // _TILE : -(-block.key_end // _TILE)] = True
        whole[at, : -(-block.key // _TILE)] = False
        whole[at, block.sure // _TILE :] = False
    return seen & ~whole, whole


def _ordered(table: npt.NDArray[np.bool_], device: torch.device) -> tuple[Tensor, Tensor]:
    """How many tiles each row of tiles has, and the number of each, those first."""
    found = table.sum(-1), np.argsort(~table, axis=-1, kind="stable")
    count, order = (to_device(part.astype(np.int32)[None, None], device) for part in found)
    return count, order


def flex_attention(
    query: Tensor,
    first: KeysValues,
    own: Sequence[KeysValues],
    mask: Any,
    kernel: Callable[..., Any],
) -> Tensor:
    """Flex attention for the step-0 part, merged with the diagonals."""
    from torch.nn.attention.flex_attention import AuxRequest

    context, aux = kernel(
        query, *first, block_mask=mask, enable_gqa=True, return_aux=AuxRequest(lse=True)
    )
    return merge(context, aux.lse, query, own)


def merge(context: Tensor, lse: Tensor, query: Tensor, own: Sequence[KeysValues]) -> Tensor:
    """Adds one key a row to attention that is done: context [1, n_h, R, d_h], lse [1, n_h, R]."""
    groups, scale = query.shape[1], query.shape[-1] ** -0.5
    spread = [tuple(x.repeat_interleave(groups // x.shape[1], dim=1) for x in pair) for pair in own]
    scores = [lse, *((query * k).sum(-1, dtype=lse.dtype) * scale for k, _ in spread)]
    weights = torch.stack(scores).softmax(0)[..., None].to(context.dtype)
    merged = context * weights[0]
    for weight, (_, v) in zip(weights[1:], spread, strict=True):
        merged = merged + weight * v
    return merged


@cache
def _compiled_flex() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention as kernel

    compiled: Callable[..., Any] = torch.compile(kernel, dynamic=True)
    return compiled
