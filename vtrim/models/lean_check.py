"""Proof at load that a lean forward gives the Hugging Face forward's states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import torch
from torch import Tensor

from vtrim.models.lean_cuda import SIGHTS
from vtrim.models.target import Target, TargetStates

TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.1}
"""Largest norm of a row's difference over the row's norm. Both sides round at each operator, in
another order: SmolLM2's 30 blocks in bf16 stand 0.01-0.06 from its fp32 states, either way, and
transformers' norms work in fp32 whatever the dtype. A mask that is not heeded gives 0.16-0.19."""

# A token, its two successors, and a sibling of the first that the others do not see.
_TREE = ((1, 0, 0, 0), (1, 1, 0, 0), (1, 1, 1, 0), (0, 0, 0, 1))
_TREE_DEPTHS = (0, 1, 2, 0)
_PREFIX = 5
_SIZE = 9
_STRIDE = 7919


@torch.inference_mode()
def difference(reference: Target, lean: Target) -> str | None:
    """The first case in which the two differ, in words; None: they agree.

    On a GPU the lean one runs until what is seen again has been recorded and replayed.
    """
    tolerance = TOLERANCE[reference.dtype]
    runs = SIGHTS if lean.device.type == "cuda" else 1
    ours = chain.from_iterable(_cases(lean, lambda mask, _: mask) for _ in range(runs))
    for (name, expected), (_, found) in zip(
        [*_cases(reference, _lowest)] * runs, ours, strict=True
    ):
        pairs = {
            "final states": (expected.hidden, found.hidden),
            "auxiliary states": (expected.aux, found.aux),
            "logits": (reference.logits(expected.hidden), lean.logits(expected.hidden)),
        }
        for part, (a, b) in pairs.items():
            error = relative_error(a, b)
            if not error <= tolerance:  # NaN is no agreement
                return f"{part} {name} differ by {error:.1e} (tolerance {tolerance:.0e})"
    return None


def _cases(
    target: Target, masked: Callable[[Tensor, torch.dtype], Tensor]
) -> Iterator[tuple[str, TargetStates]]:
    from transformers import DynamicCache

    # Spread over the vocabulary: rows of special tokens are ill-conditioned (0.5 in bf16).
    ids = _STRIDE * torch.arange(1, _SIZE + 1, device=target.device)[None] % target.vocab_size
    yield "without a cache", target.forward(ids)
    cache = DynamicCache(config=target.config)
    yield "behind an empty cache", target.forward(ids[:, :_PREFIX], cache=cache)
    yield "of one row behind a cache", target.forward(ids[:, _PREFIX : _PREFIX + 1], cache=cache)
    yield "behind a filled cache", target.forward(ids[:, _PREFIX + 1 :], cache=cache)
    cache = DynamicCache(config=target.config)
    target.forward(ids[:, :_PREFIX], cache=cache)
    tree = torch.tensor(_TREE, device=target.device, dtype=torch.bool)
    seen = torch.ones(len(_TREE), _PREFIX, device=target.device, dtype=torch.bool)
    positions = torch.tensor([_TREE_DEPTHS], device=target.device) + _PREFIX
    yield (
        "of a tree",
        target.forward(
            ids[:, _PREFIX:],
            position_ids=positions,
            attention_mask=masked(torch.cat((seen, tree), dim=1)[None, None], target.dtype),
            cache=cache,
        ),
    )


def _lowest(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """The additive form of a bool mask, which every attention of transformers takes."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)


def relative_error(expected: Tensor, found: Tensor) -> float:
    """Largest norm of a row's difference [..., d] over the row's norm."""
    expected = expected.float()
    size = expected.norm(dim=-1).clamp_min(1e-30)  # auxiliary states may be none at all
    return float(((expected - found.float()).norm(dim=-1) / size).max())
