"""Jensen-Shannon divergence: literal values, zeros, bounds, extreme logits."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from vtrim.decoding.acceptors.divergence import js, js_trimmed
from vtrim.decoding.acceptors.heads import Heads


def test_laws_with_zeros_have_their_literal_divergence(inputs: Path) -> None:
    cases = json.loads((inputs / "g21_js_cases.json").read_text())
    for case in cases["cases"]:
        p, q = torch.tensor(case["P"]).log(), torch.tensor(case["Q"]).log()
        for left, right in ((p, q), (q, p), (p.log_softmax(-1), q.log_softmax(-1))):
            assert float(js(left, right)) == pytest.approx(case["js_nats"], abs=1e-6), case["name"]
            assert float(js(left, right)) >= 0


def test_logits_with_minus_infinity_give_the_same_as_probabilities(inputs: Path) -> None:
    cases = json.loads((inputs / "g21_js_cases.json").read_text())
    for case in cases["cases"]:
        p, q = torch.tensor(case["P"]).log() + 7, torch.tensor(case["Q"]).log()
        heads = Heads(p.repeat(3, 1), 0.0, q, torch.arange(q.numel()))  # its centroid is P itself
        assert heads.distance == pytest.approx(case["js_nats"], abs=1e-6), case["name"]
        assert max(heads.radii) < 1e-7


def test_the_divergence_of_equal_laws_is_0_and_of_any_two_at_most_ln_2() -> None:
    generator = torch.Generator().manual_seed(0)
    log_p = (torch.randn(500, 40, generator=generator) * 10).log_softmax(-1)
    log_q = (torch.randn(500, 40, generator=generator) * 10).log_softmax(-1)
    assert torch.all(js(log_p, log_p) < 1e-7)
    values = js(log_p, log_q)
    assert torch.all((values > 0) & (values <= math.log(2) * (1 + 1e-6)))
    torch.testing.assert_close(values, js(log_q, log_p))


def test_a_trimmed_law_has_the_divergence_of_its_scattered_self() -> None:
    generator = torch.Generator().manual_seed(1)
    for seed in range(200):
        size = 5 + seed % 40
        log_p = (3 * torch.randn(size, generator=generator)).log_softmax(-1)
        kept = torch.randperm(size, generator=generator)[: 1 + seed % size].sort().values
        log_q = (3 * torch.randn(kept.numel(), generator=generator)).log_softmax(-1)
        scattered = torch.full((size,), -torch.inf).scatter(0, kept, log_q)
        value = float(js_trimmed(log_q, log_p, kept))
        assert value == pytest.approx(float(js(scattered, log_p)), abs=2e-6)
        outside = 1 - float(log_p[kept].exp().sum())
        assert value >= outside / 2 * math.log(2) - 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.0, 0.05, 3.0])
def test_extreme_logits_give_no_nan(dtype: torch.dtype, temperature: float) -> None:
    generator = torch.Generator().manual_seed(2)
    extremes = torch.tensor([3e38, -3e38, 1e30, -1e30, 1e4, -1e4, 88.0, 0.0, 1e-38, -math.inf])
    for _ in range(1000):
        picks = torch.randint(len(extremes), (3, 8), generator=generator)
        logits = extremes[picks] + torch.randn(3, 8, generator=generator)
        logits[:, 0] = logits[:, 0].clamp(min=-3e38)  # every head has a possible token
        log_q = logits[0, :4].log_softmax(-1).nan_to_num(nan=-math.log(4), neginf=-math.inf)
        heads = Heads(logits.to(dtype), temperature, log_q, torch.tensor([1, 3, 4, 6]))
        values = (*heads.radii, heads.distance)
        assert not heads.log_centroid.isnan().any()
        assert all(0 <= value <= math.log(2) * (1 + 1e-6) for value in values), values
        assert len(heads.best) == 3
