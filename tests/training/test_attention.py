"""Attention of an unroll step: fast paths equal the plain one, and keep no rows x tokens."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vtrim.training import batch
from vtrim.training.attention import (
    Attend,
    attention_of,
    blocked_attention,
    flex_attention,
    flex_mask,
    merge,
)
from vtrim.training.batch import Rows, TrainSample, make_rows

sys.path.insert(0, str(Path(__file__).parent))
from plain_attention import plain_attention

GROUPS, SHARE, SIZE = 2, 3, 8
MASKS = ["0011011100", "111", "1", "0000001111111", "01" * 5, "0111111111"]
"""Replies of several documents, gaps between them, documents without a row."""


def _rows(masks: list[str], device: str = "cpu") -> Rows:
    samples = [
        TrainSample(np.zeros(len(m), dtype=np.int64), np.array([c == "1" for c in m]), i)
        for i, m in enumerate(masks)
    ]
    return make_rows([samples], 3, "eagle", device)


def _inputs(rows: Rows, steps: int, dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
    """query, step-0 keys and values, then ``steps`` own keys and values."""
    torch.manual_seed(7)
    count = rows.position.shape[1]
    shapes = [(GROUPS * SHARE, count), *2 * [(GROUPS, rows.length)], *2 * steps * [(GROUPS, count)]]
    return [
        torch.randn(1, *shape, SIZE, dtype=dtype, device=device).requires_grad_()
        for shape in shapes
    ]


def _call(attend: Attend) -> Callable[..., Tensor]:
    """``attend`` over a flat list of tensors."""

    def call(query: Tensor, keys: Tensor, values: Tensor, *own: Tensor) -> Tensor:
        half = len(own) // 2
        return attend(query, (keys, values), list(zip(own[:half], own[half:], strict=True)))

    return call


def _blocked(rows: Rows) -> Callable[..., Tensor]:
    return _call(lambda query, first, own: blocked_attention(query, first, own, rows))


def _plain(rows: Rows) -> Callable[..., Tensor]:
    position = rows.position[0]
    start = rows.start[0, position]
    return _call(lambda query, first, own: plain_attention(query, first, own, position, start))


def _with_gradients(attend: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    context = attend(*inputs)
    torch.manual_seed(9)
    grad = torch.randn(context.shape).bfloat16().to(context)  # the same in every dtype
    return [context, *torch.autograd.grad(context, inputs, grad)]


@pytest.mark.parametrize("block_rows", [1, 2, 64])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_context_and_gradients_equal_the_plain_ones(
    steps: int, block_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "BLOCK_ROWS", block_rows)
    rows = _rows(MASKS)
    assert max(block.row_end - block.row for block in rows.blocks) <= block_rows
    inputs = _inputs(rows, steps, torch.float64)
    found = _with_gradients(_blocked(rows), inputs)
    for ours, theirs in zip(found, _with_gradients(_plain(rows), inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_the_gradients_are_those_of_finite_differences() -> None:
    rows = _rows(["0111", "11"])
    assert torch.autograd.gradcheck(_blocked(rows), _inputs(rows, 2, torch.float64))


def test_bf16_sums_in_fp32() -> None:
    rows = _rows(["0" + "1" * 300])
    inputs = _inputs(rows, 2, torch.bfloat16)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = _with_gradients(_plain(rows), wide)
    for ours, theirs in zip(_with_gradients(_blocked(rows), inputs), exact, strict=True):
        assert (ours.double() - theirs).norm() < 0.01 * theirs.norm()


def test_a_micro_batch_without_a_row_is_nothing() -> None:
    rows = _rows(["0000", "0"])
    assert rows.blocks == ()
    found = _with_gradients(_blocked(rows), _inputs(rows, 1, torch.float32))
    assert found[0].shape == (1, GROUPS * SHARE, 0, SIZE)
    assert not any(gradient.any() for gradient in found)


def test_blocks_hold_every_row_once_with_the_keys_it_sees() -> None:
    rows = _rows(MASKS)
    covered = []
    for block in rows.blocks:
        for row in range(block.row, block.row_end):
            covered.append(row)
            position = int(rows.position[0, row])
            assert block.key == int(rows.start[0, position])
            assert block.sure - 1 <= position < block.key_end
    assert covered == list(range(rows.position.shape[1]))


class _Largest(TorchDispatchMode):
    """The most elements that any tensor has while it is on."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.numel())
        return out


def test_no_tensor_has_the_size_of_rows_times_tokens() -> None:
    length = 1500
    rows = _rows(["1" * length])
    inputs = _inputs(rows, 1, torch.float32)
    with _Largest() as seen:
        _with_gradients(_blocked(rows), inputs)
    heads = GROUPS * SHARE
    assert seen.largest <= heads * length * max(batch.BLOCK_ROWS, SIZE)
    kept: list[int] = []

    def count(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        _blocked(rows)(*inputs)
    assert max(kept) <= heads * length * SIZE


def test_the_scores_that_are_computed_are_half_of_the_rectangle() -> None:
    rows = _rows(["1" * 2000, "1" * 1000])
    scores = sum((b.row_end - b.row) * (b.key_end - b.key) for b in rows.blocks)
    assert scores < 0.53 * (2000**2 + 1000**2)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("steps", [0, 2])
def test_flex_attention_sees_what_the_plain_one_sees(steps: int) -> None:
    """Forward only: torch has no backward of it on a CPU."""
    from torch.nn.attention.flex_attention import flex_attention as kernel

    rows = _rows(MASKS)
    mask = flex_mask(rows)
    inputs = [x.detach() for x in _inputs(rows, steps, torch.float32)]
    flex = _call(lambda q, first, own: flex_attention(q, first, own, mask, kernel))
    torch.testing.assert_close(flex(*inputs), _plain(rows)(*inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_the_block_mask_covers_exactly_the_keys_that_rows_may_see(seed: int) -> None:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, 700, int(draw.integers(1, 7)))
    masks = ["".join(draw.choice(["0", "1"], n, p=[0.3, 0.7])) for n in lengths]
    masks.insert(len(masks) // 2, "0" * int(draw.integers(1, 400)))  # a gap of any width
    rows = _rows(masks)
    position, key = rows.position[0], torch.arange(rows.length)
    seen = (key <= position[:, None]) & (key >= rows.start[0, position][:, None])
    mask = flex_mask(rows)
    size = mask.BLOCK_SIZE[0]

    def spread(count: Tensor, order: Tensor) -> Tensor:
        """The tiles of one kind, a boolean for each row and key."""
        tiles = torch.zeros(order.shape[2:], dtype=torch.bool)
        for line, found, names in zip(tiles, count[0, 0].tolist(), order[0, 0], strict=True):
            line[names[:found].long()] = True
        wide = tiles.repeat_interleave(size, 0).repeat_interleave(size, 1)
        return wide[: position.numel(), : rows.length]

    part = spread(mask.kv_num_blocks, mask.kv_indices)
    whole = spread(mask.full_kv_num_blocks, mask.full_kv_indices)
    assert not (part & whole).any()
    row = torch.arange(position.numel())[:, None]
    asked = mask.mask_mod(torch.tensor(0), torch.tensor(0), row, key[None])
    assert torch.equal(part & asked | whole, seen)
    # as many tiles are left out as there can be, but for a few between documents
    needed = torch.nn.functional.max_pool2d(seen[None].float(), size, size, ceil_mode=True)
    tiles = int(mask.kv_num_blocks.sum() + mask.full_kv_num_blocks.sum())
    assert tiles <= 1.15 * int(needed.sum()) + 1


def test_the_block_mask_is_made_without_a_tensor_of_rows_times_tokens() -> None:
    rows = _rows(["1" * 5000, "0" * 500 + "1" * 2500])
    with _Largest() as seen:
        mask = flex_mask(rows)
    assert seen.largest <= (1 + rows.length // 128) ** 2 + rows.length
    assert int(mask.full_kv_num_blocks.sum()) > 600, "most tiles need no mask"


def test_merging_by_log_sum_exp_gives_the_plain_gradients() -> None:
    rows = _rows(MASKS)
    position = rows.position[0]
    key = torch.arange(rows.length)
    seen = (key <= position[:, None]) & (key >= rows.start[0, position][:, None])

    def merged(query: Tensor, first: tuple[Tensor, Tensor], own: Any) -> Tensor:
        keys, values = (x.repeat_interleave(SHARE, dim=1) for x in first)
        scores = (query @ keys.mT * SIZE**-0.5).masked_fill(~seen, float("-inf"))
        return merge(scores.softmax(-1) @ values, scores.logsumexp(-1), query, own)

    inputs = _inputs(rows, 3, torch.float64)
    found = _with_gradients(_call(merged), inputs)
    for ours, theirs in zip(found, _with_gradients(_plain(rows), inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("steps", [0, 2])
def test_attention_on_cuda_equals_the_plain_one(steps: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SIZE", 64)
    rows = _rows(["0" * 40 + "1" * 200, "1" * 90, "01" * 30], "cuda")
    inputs = _inputs(rows, steps, torch.float32, "cuda")
    found = _with_gradients(_call(attention_of(rows)), inputs)
    for ours, theirs in zip(found, _with_gradients(_plain(rows), inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2)
