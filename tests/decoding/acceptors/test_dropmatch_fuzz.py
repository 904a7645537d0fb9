"""DropMatch on 10,000 proposals of extreme logits: no NaN anywhere, always a valid verdict."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from vtrim.decoding.acceptors.dropmatch import CORRECTIONS, CRITERIA, DropMatch
from vtrim.decoding.protocol import Proposal, Verification

VOCAB, KEPT, HEADS, ROWS = 8, torch.tensor([0, 2, 3, 6]), 3, 2
TEMPERATURES = (0.0, 1e-3, 0.7, 1.0, 5.0)


def shaped(kind: int, generator: torch.Generator, rows: int) -> Tensor:
    """[rows, V] logits of one kind; the first token is possible in every row."""
    noise = torch.randn(rows, VOCAB, generator=generator)
    extremes = torch.tensor([3e38, -3e38, 1e30, -1e30, 1e4, -1e4, 0.0, 1e-40, -math.inf])
    picks = extremes[torch.randint(len(extremes), (rows, VOCAB), generator=generator)]
    logits = (
        picks,
        noise * 1e4,
        torch.full((rows, VOCAB), 7.0),  # all equal
        torch.nn.functional.one_hot(noise.argmax(-1), VOCAB) * 1e5,  # one-hot laws
        noise.masked_fill(torch.arange(VOCAB) >= 4, -math.inf),  # rows of the head masked
        noise * 1e-41,  # denormal
    )[kind % 6].clone()
    logits[:, 0] = logits[:, 0].clamp(min=-3e38)
    return logits


def law_of(kind: int, generator: torch.Generator) -> Tensor:
    """[ROWS, k] log-probabilities of the draft: soft, one-hot or with zeros."""
    noise = torch.randn(ROWS, len(KEPT), generator=generator)
    one_hot = torch.full_like(noise, -math.inf).scatter(-1, noise.argmax(-1, keepdim=True), 0.0)
    holes = noise.masked_fill(torch.arange(len(KEPT)) % 2 == 1, -math.inf)
    return (noise.log_softmax(-1), one_hot, holes.log_softmax(-1))[kind % 3]


def numbers(value: Any) -> list[float]:
    """All numbers in a summary."""
    if isinstance(value, dict):
        return [number for part in value.values() for number in numbers(part)]
    if isinstance(value, list):
        return [number for part in value for number in numbers(part)]
    return [value] if isinstance(value, (int, float)) else []


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_extreme_logits_give_a_valid_verdict_and_no_nan(criterion: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(CRITERIA.index(criterion))
    for trial in range(1250):
        temperature = TEMPERATURES[trial % 5]
        clean = shaped(trial, generator, ROWS + 1).to(dtype).float()
        noisy = shaped(trial // 6, generator, ROWS * HEADS).to(dtype)
        log_q = law_of(trial, generator)
        tokens = KEPT[log_q.argmax(-1)]
        proposal = Proposal(tokens, log_q if temperature > 0 else None, log_q, KEPT)
        rule = DropMatch(
            heads=HEADS,
            criterion=criterion,
            correction=CORRECTIONS[trial % 4],
            seed=trial,
            accept_clean_argmax=trial % 3 > 0,
            min_centroid_prob=(trial % 2) * 0.2,
            diagnose=trial % 2 == 0,
        )
        view = Verification(
            torch.ones(ROWS + 1, 4), clean, lambda h, all_=noisy: all_[: len(h)], temperature, 9, 0
        )
        verdict = rule.accept(proposal, view)
        assert 0 <= verdict.next_token < VOCAB
        assert verdict.path == tuple(range(len(verdict.reasons)))
        summary = rule.diagnostics.summary()
        assert all(math.isfinite(number) for number in numbers(summary)), (trial, summary)
        radius = summary["js_radius"]
        assert radius is None or 0 <= radius["max"] <= math.log(2) * (1 + 1e-6)
