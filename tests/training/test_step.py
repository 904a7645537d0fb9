"""The training step against plain loops, and what it must not do."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from vtrim.models.draft import Eagle3Draft
from vtrim.models.target import Target
from vtrim.shape import DraftShape
from vtrim.training.batch import TrainSample, make_rows
from vtrim.training.teacher import Teacher
from vtrim.training.ttt import TTTModel, step_loss

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


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("alignment", ["exact", "eagle"])
def test_loss_and_gradients_equal_the_plain_loops(family: str, alignment: str) -> None:
    steps, decay = 4, 0.8
    target, samples = _target(family), _samples()
    draft = _draft(target)
    rows = make_rows(samples, steps, alignment)
    teacher = Teacher(target, draft.vocab_ids, torch.float32)
    sums = TTTModel(draft, steps)(rows, teacher.features(samples, rows))
    fast = step_loss(sums, sums.rows, decay)
    fast.backward()
    fast_gradients = {name: p.grad.clone() for name, p in draft.named_parameters()}

    draft.zero_grad()
    logits, aux = [], []
    for ids, _ in SAMPLES:
        out = target.model(torch.tensor([ids]), output_hidden_states=True)
        logits.append(out.logits[0])
        aux.append(torch.cat([out.hidden_states[j][0] for j in (2, 4, 5)], -1))
    weights = dict(draft.named_parameters())
    slow, _ = reference_step(
        weights, draft.shape, KEPT, SAMPLES, logits, aux, target.embedding, steps, decay, alignment
    )
    slow.backward()
    assert int(sums.oov.sum()) > 0, "the case must hold out-of-vocabulary teachers"
    assert int((sums.rows - sums.oov).sum()) > 5
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-5)
    for name, gradient in fast_gradients.items():
        torch.testing.assert_close(gradient, weights[name].grad, rtol=1e-5, atol=1e-5, msg=name)


def test_padding_and_batch_mates_change_nothing() -> None:
    target, samples = _target("llama"), _samples()
    model = TTTModel(_draft(target), 3)
    teacher = Teacher(target, model.draft.vocab_ids, torch.float32)

    def sums(chosen: list[TrainSample]) -> torch.Tensor:
        rows = make_rows(chosen, 3, "exact")
        out = model(rows, teacher.features(chosen, rows))
        return torch.stack([out.loss, out.correct, out.oov, out.rows])

    alone = sum(sums([s]) for s in samples)
    torch.testing.assert_close(sums(samples), alone, rtol=1e-5, atol=1e-5)


def test_a_cached_teacher_gives_the_same_features() -> None:
    target, samples = _target("llama"), _samples()
    rows = make_rows(samples, 3, "exact")
    kept = torch.tensor(KEPT)
    fresh = Teacher(target, kept, torch.float32).features(samples, rows)
    cached = Teacher(target, kept, torch.float32, cache_bytes=10**9)
    cached.features(samples, rows)
    again = cached.features(samples, rows)
    assert cached.cached_bytes > 0
    for name, value in vars(fresh).items():
        torch.testing.assert_close(getattr(again, name), value, msg=name)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_step_on_cuda_gives_the_loss_of_the_cpu() -> None:
    samples, kept = _samples(), torch.tensor(KEPT)
    totals = []
    for device in ("cpu", "cuda"):
        target = _target("llama")
        draft = _draft(target).to(device)
        target = Target(target.model.to(device), "llama")
        rows = make_rows(samples, 3, "exact", device)
        features = Teacher(target, kept, torch.float32).features(samples, rows)
        sums = TTTModel(draft, 3)(rows, features)
        totals.append(sums.loss.detach().cpu())
    torch.testing.assert_close(totals[0], totals[1], rtol=1e-3, atol=1e-3)
