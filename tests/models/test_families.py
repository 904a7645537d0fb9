"""Every family of targets: a tiny random model of each, from its head path to a decoded draft.

Random weights with norms away from one, windows shorter than the text, soft caps that bend.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.chain import ChainDrafter
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import GenerationSettings
from vtrim.models.draft import Eagle3Draft
from vtrim.models.layout import draft_config, load_draft, save_draft
from vtrim.models.target import Target
from vtrim.shape import DraftShape
from vtrim.training.batch import TrainSample, make_rows
from vtrim.training.init import new_draft
from vtrim.training.settings import TrainSettings
from vtrim.training.states import OnlineStates, full_vocabulary
from vtrim.training.teacher import Teacher
from vtrim.training.ttt import TTTModel, step_coefficients
from vtrim.vocab import DraftVocab

V, D, LAYERS = 40, 32, 8
AUX = (2, 4, 5)
KEPT = [1, 2, 3, 5, 8, 9, 11, 12, 14, 17, 20, 22, 25, 30, 31, 33, 36, 38]
SIZES: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": D,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
MULTIPLIERS = {"logits_scaling": 4.0, "embedding_multiplier": 3.0, "residual_multiplier": 0.5}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@dataclass(frozen=True)
class Family:
    """One kind of target, and the draft that fits it: head size, norm eps, RoPE base."""

    model: str
    changes: dict[str, Any] = field(default_factory=dict)
    head_dim: int = 8
    eps: float = 1e-6
    theta: float = 10000.0
    config: str = ""


FAMILIES = {
    "llama": Family("Llama", {"tie_word_embeddings": False}),
    "llama, tied, llama3 rope": Family(
        "Llama", {"tie_word_embeddings": True, "rope_parameters": LLAMA3}, theta=5e5
    ),
    "qwen2": Family("Qwen2"),
    "qwen2-moe": Family("Qwen2Moe", MOE | {"num_experts": 4}),
    "qwen3": Family("Qwen3", {"head_dim": 16}, head_dim=16),
    "qwen3-moe": Family("Qwen3Moe", MOE | {"num_experts": 4, "head_dim": 16}, head_dim=16),
    "mistral": Family("Mistral", {"sliding_window": 4}),
    "mixtral": Family("Mixtral", {"num_local_experts": 4}, eps=1e-5, theta=1e6),
    "gemma2": Family("Gemma2", {"head_dim": 16, "sliding_window": 4}, head_dim=16),
    "gemma3": Family(
        "Gemma3",
        {"head_dim": 16, "sliding_window": 4, "final_logit_softcapping": 5.0},
        head_dim=16,
        theta=1e6,
        config="Gemma3Text",
    ),
    "phi3": Family("Phi3", eps=1e-5),
    "phi, biased head": Family("Phi", eps=1e-5),
    "gpt-oss": Family(
        "GptOss",
        {
            "num_local_experts": 4,
            "head_dim": 16,
            "sliding_window": 4,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 150000.0,
                "factor": 2.0,
                "original_max_position_embeddings": 32,
            },
        },
        head_dim=16,
        eps=1e-5,
        theta=150000.0,
    ),
    "glm4": Family("Glm4", {"head_dim": 16, "rms_norm_eps": 1e-5}, head_dim=16, eps=1e-5),
    "granite": Family("Granite", MULTIPLIERS),
    "granite-moe": Family("GraniteMoe", MULTIPLIERS | {"num_local_experts": 4}),
    "cohere": Family("Cohere", eps=1e-5, theta=500000.0),
    "cohere2": Family("Cohere2", {"sliding_window": 4}, eps=1e-5),
}


@cache
def _target(name: str) -> Target:
    family = FAMILIES[name]
    config = getattr(transformers, f"{family.config or family.model}Config")
    model_class = getattr(transformers, f"{family.model}ForCausalLM")
    torch.manual_seed(3)
    model = model_class(config(**SIZES | family.changes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return Target(model, name)


@pytest.fixture(params=sorted(FAMILIES))
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def _config(target: Target) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(target.model.config.to_json_string(use_diff=False))
    return values


def _ids(rows: int, length: int, seed: int) -> Tensor:
    return torch.randint(1, V, (rows, length), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_the_head_path_gives_the_models_own_logits_whole_or_in_parts(name: str) -> None:
    target, ids = _target(name), _ids(1, 12, 1)
    target.check()
    whole = target.model(ids, use_cache=False).logits
    hidden = target.forward(ids).hidden
    torch.testing.assert_close(target.logits(hidden), whole)
    parts = [target.logits_between(hidden, start, min(start + 7, V)) for start in range(0, V, 7)]
    torch.testing.assert_close(torch.cat(parts, -1), whole)
    torch.testing.assert_close(
        target.logits_of(hidden, torch.tensor(KEPT)), whole[..., torch.tensor(KEPT)]
    )
    best, log_z = full_vocabulary(target, hidden[0])
    torch.testing.assert_close(best, whole[0].argmax(-1))
    torch.testing.assert_close(log_z, whole[0].logsumexp(-1))


@torch.no_grad()
def test_auxiliary_states_are_the_unnormed_streams_entering_their_blocks(name: str) -> None:
    target, ids = _target(name), _ids(1, 12, 2)
    states = target.forward(ids)
    known = target.model(ids, output_hidden_states=True, use_cache=False).hidden_states
    assert target.aux_layer_ids == AUX
    torch.testing.assert_close(states.aux, torch.cat([known[j] for j in AUX], -1))
    torch.testing.assert_close(states.hidden, known[LAYERS])  # the last one is normed
    size = known[LAYERS - 1].pow(2).mean(-1)
    assert not torch.allclose(size, size.mean(), rtol=0.01), "a normed stream has one size"


@torch.no_grad()
def test_rows_of_a_padded_batch_are_the_rows_alone(name: str) -> None:
    target = _target(name)
    long, short = _ids(1, 12, 3), _ids(1, 7, 4)
    batch = torch.cat([long, torch.nn.functional.pad(short, (0, 5))])
    together = target.forward(batch)
    for row, ids in enumerate((long, short)):
        alone, length = target.forward(ids), ids.shape[1]
        torch.testing.assert_close(together.hidden[row, :length], alone.hidden[0])
        torch.testing.assert_close(together.aux[row, :length], alone.aux[0])


def test_the_draft_is_shaped_as_its_target(name: str) -> None:
    target, family = _target(name), FAMILIES[name]
    shape = DraftShape.from_target_config(_config(target))
    assert shape == DraftShape(
        hidden_size=D,
        target_hidden_size=D,
        intermediate_size=48,  # the dense width, whatever an expert's is
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=family.head_dim,
        target_vocab_size=V,
        num_target_layers=LAYERS,
        rms_norm_eps=family.eps,
        rope_theta=family.theta,
        max_position_embeddings=64,
    )
    weights = Eagle3Draft(shape, torch.tensor(KEPT)).state_dict()
    rows = {"q": 4 * family.head_dim, "k": 2 * family.head_dim, "v": 2 * family.head_dim}
    for projection, size in rows.items():
        assert weights[f"midlayer.self_attn.{projection}_proj.weight"].shape == (size, 2 * D)
    assert weights["midlayer.self_attn.o_proj.weight"].shape == (D, 4 * family.head_dim)
    assert weights["fc.weight"].shape == (D, 3 * D)


def test_a_trained_step_is_finite_and_its_draft_decodes_as_the_target_alone(
    name: str, tmp_path: Path
) -> None:
    target = _target(name)
    shape = DraftShape.from_target_config(_config(target))
    vocab = DraftVocab.of(KEPT, V)
    draft = new_draft(target, shape, vocab, "target", 7)
    _train_once(target, draft)
    config = draft_config(shape, vocab, target.aux_layer_ids, _config(target), {})
    save_draft(tmp_path, draft, vocab, config, "card\n")
    found = load_draft(tmp_path)
    assert found.model.shape == shape
    assert found.aux_layer_ids == AUX
    for key, value in found.model.state_dict().items():
        torch.testing.assert_close(value, draft.state_dict()[key].bfloat16().float())

    engine = Engine(target, ChainDrafter(found.model, target.embedding))
    settings = GenerationSettings(
        max_new_tokens=20, stop_ids=frozenset(), temperature=0.0, num_draft_tokens=3, seed=0
    )
    prompt = _ids(1, 6, 5)[0].tolist()
    plain = engine.decode_plain(prompt, settings).tokens
    assert engine.decode(prompt, settings, make_acceptor("greedy")).tokens == plain
    with torch.no_grad():
        whole = target.model(torch.tensor([[*prompt, *plain]]), use_cache=False).logits[0]
    assert whole[len(prompt) - 1 : -1].argmax(-1).tolist() == list(plain)


def _train_once(target: Target, draft: Eagle3Draft) -> None:
    """One step of plain gradient descent on two conversations."""
    settings = TrainSettings(ttt_steps=3, dtype="fp32")
    samples = [
        TrainSample(_ids(1, length, 6)[0].numpy(), np.arange(length) >= start, index)
        for index, (length, start) in enumerate(((14, 5), (9, 2)))
    ]
    bins = [[sample] for sample in samples]
    rows = make_rows(bins, settings.ttt_steps, "exact")
    teacher = Teacher(target, torch.tensor(KEPT), torch.float32, OnlineStates(target))
    features = teacher.features(bins, rows)
    stored = target.model.get_input_embeddings().weight
    assert torch.equal(features.embeds, stored[rows.ids]), "the row as stored, without a scale"
    coefficients = step_coefficients(torch.tensor(rows.counts), settings.decay)
    sums = TTTModel(draft, settings, teacher.logits)(rows, features, coefficients)
    sums.total.backward()
    assert torch.isfinite(sums.total.detach())
    assert sums.total.detach() > 0
    with torch.no_grad():
        for key, parameter in draft.named_parameters():
            assert parameter.grad is not None, key
            assert torch.isfinite(parameter.grad).all(), key
            assert parameter.grad.abs().sum() > 0 or key in _STILL, key
            parameter -= 0.1 * parameter.grad


@pytest.mark.parametrize(
    ("name", "scale"), [("gemma2", D**0.5), ("gemma3", D**0.5), ("granite", 3.0), ("llama", 1.0)]
)
@torch.no_grad()
def test_the_draft_reads_rows_without_the_scale_its_target_applies(name: str, scale: float) -> None:
    """As vLLM 0.32 does, whose chains equal ours with the stored row only, and SGLang."""
    target, ids = _target(name), _ids(1, 5, 8)
    entering = target.model(ids, output_hidden_states=True, use_cache=False).hidden_states[0]
    torch.testing.assert_close(entering, target.embedding[ids] * scale)


# projections that begin at zero pass nothing back in the first step
_STILL = {
    *(f"midlayer.self_attn.{name}_proj.weight" for name in "qkv"),
    *(f"midlayer.mlp.{name}_proj.weight" for name in ("gate", "up")),
    *(f"midlayer.{name}.weight" for name in ("hidden_norm", "input_layernorm")),
    "midlayer.post_attention_layernorm.weight",
}
