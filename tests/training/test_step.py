"""The training step against plain loops, and what it must not do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from vtrim.models.draft import Eagle3Draft
from vtrim.models.target import Target
from vtrim.shape import DraftShape
from vtrim.training.batch import TrainSample, make_rows
from vtrim.training.settings import TrainSettings
from vtrim.training.states import MemoryStates, OnlineStates
from vtrim.training.teacher import Teacher
from vtrim.training.ttt import StepSums, TTTModel, step_coefficients

sys.path.insert(0, str(Path(__file__).parent))
from reference import reference_step

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
FAMILIES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}
SAMPLES = [
    ([1, 5, 9, 3, 3, 7, 2, 8, 30, 11, 4, 2], [0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1]),
    ([6, 2, 31, 12, 9, 1, 2], [0, 0, 1, 1, 1, 1, 1]),
    ([4, 4, 17], [0, 1, 1]),
]
KEPT = [0, 1, 2, 3, 5, 8, 9, 11, 12, 14, 17, 20, 22, 25, 30, 31, 33, 36]


def _target(family: str) -> Target:
    config_class, model_class = FAMILIES[family]
    torch.manual_seed(3)
    model = model_class(config_class(**SIZES, tie_word_embeddings=False))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6)
    return Target(model, family)


def _draft(target: Target) -> Eagle3Draft:
    shape = DraftShape.from_target_config(target.model.config.to_dict())
    torch.manual_seed(5)
    draft = Eagle3Draft(shape, torch.tensor(KEPT))
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return draft


def _samples() -> list[TrainSample]:
    return [
        TrainSample(np.array(ids), np.array(mask, dtype=bool), index)
        for index, (ids, mask) in enumerate(SAMPLES)
    ]


def _settings(**changes: Any) -> TrainSettings:
    return TrainSettings(**{"ttt_steps": 4, "dtype": "fp32", **changes})


def _teacher(target: Target) -> Teacher:
    return Teacher(target, torch.tensor(KEPT), torch.float32, OnlineStates(target))


def _one_by_one(samples: list[TrainSample]) -> list[list[TrainSample]]:
    return [[sample] for sample in samples]


def _step(
    target: Target,
    draft: Eagle3Draft,
    bins: list[list[TrainSample]],
    settings: TrainSettings,
    device: str = "cpu",
) -> StepSums:
    rows = make_rows(bins, settings.ttt_steps, settings.mask_alignment, device)
    teacher = _teacher(target)
    model = TTTModel(draft, settings, teacher.logits)
    divisors = torch.tensor(rows.counts, device=device)
    coefficients = step_coefficients(divisors, settings.decay)
    return model(rows, teacher.features(bins, rows), coefficients)


def _slow(target: Target, draft: Eagle3Draft, settings: TrainSettings) -> torch.Tensor:
    logits, aux = [], []
    for ids, _ in SAMPLES:
        out = target.model(torch.tensor([ids]), output_hidden_states=True)
        logits.append(out.logits[0])
        aux.append(torch.cat([out.hidden_states[j][0] for j in (2, 4, 5)], -1))
    total, _ = reference_step(
        dict(draft.named_parameters()),
        draft.shape,
        KEPT,
        SAMPLES,
        logits,
        aux,
        target.embedding,
        settings.ttt_steps,
        settings.decay,
        settings.mask_alignment,
    )
    return total


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("alignment", ["exact", "eagle"])
def test_loss_and_gradients_equal_the_plain_loops(
    family: str, alignment: str, packed: bool
) -> None:
    settings = _settings(mask_alignment=alignment)
    target, samples = _target(family), _samples()
    draft = _draft(target)
    bins = [[samples[0], samples[2]], [samples[1]]] if packed else _one_by_one(samples)
    sums = _step(target, draft, bins, settings)
    sums.total.backward()
    fast_gradients = {name: p.grad.clone() for name, p in draft.named_parameters()}

    draft.zero_grad()
    slow = _slow(target, draft, settings)
    slow.backward()
    assert int(sums.oov.sum()) > 0, "the case must hold out-of-vocabulary teachers"
    torch.testing.assert_close(sums.total, slow, rtol=1e-5, atol=1e-5)
    for name, parameter in draft.named_parameters():
        torch.testing.assert_close(
            fast_gradients[name], parameter.grad, rtol=1e-5, atol=1e-5, msg=name
        )


def test_padding_and_batch_mates_change_nothing() -> None:
    target, samples = _target("llama"), _samples()
    draft, settings = _draft(target), _settings(ttt_steps=3)

    def sums(chosen: list[TrainSample]) -> torch.Tensor:
        out = _step(target, draft, _one_by_one(chosen), settings)
        return torch.stack([out.loss, out.correct, out.oov])

    alone = sum(sums([s]) for s in samples)
    torch.testing.assert_close(sums(samples), alone, rtol=1e-5, atol=1e-5)


def test_states_kept_in_memory_give_the_same_features() -> None:
    target, samples = _target("llama"), _samples()
    bins = _one_by_one(samples)
    rows = make_rows(bins, 3, "exact")
    fresh = _teacher(target).features(bins, rows)
    memory = MemoryStates(OnlineStates(target), 10**9)
    teacher = Teacher(target, torch.tensor(KEPT), torch.float32, memory)
    teacher.features(bins, rows)
    assert memory.used > 0
    memory.inner = None  # type: ignore[assignment]  # a second call must not need it
    again = teacher.features(bins, rows)
    for name, value in vars(fresh).items():
        torch.testing.assert_close(getattr(again, name), value, msg=name)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_step_on_cuda_gives_the_loss_of_the_cpu() -> None:
    totals = []
    for device in ("cpu", "cuda"):
        target = _target("llama")
        draft = _draft(target).to(device)
        target = Target(target.model.to(device), "llama")
        sums = _step(target, draft, _one_by_one(_samples()), _settings(), device)
        totals.append(sums.total.detach().cpu())
    torch.testing.assert_close(totals[0], totals[1], rtol=1e-3, atol=1e-3)
