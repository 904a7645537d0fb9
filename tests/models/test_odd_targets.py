"""Targets that work as models but not as a draft's target, and what hard inputs must give."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaForCausalLM,
    PhiConfig,
    PhiForCausalLM,
)

from vtrim.errors import InputError
from vtrim.models.draft import Eagle3Draft
from vtrim.models.target import Target, load_target
from vtrim.shape import DraftShape
from vtrim.training.states import OnlineStates, full_vocabulary
from vtrim.training.teacher import Teacher


class Int8Head(nn.Module):
    """A head that multiplies by int8 rows and one scale each."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.scale = plain.weight.abs().amax(1, keepdim=True) / 127
        self.weight = nn.Parameter((plain.weight / self.scale).round().to(torch.int8), False)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden @ (self.weight * self.scale).T


class PackedHead(nn.Module):
    """A head that keeps its rows in a form of its own."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.packed = plain.weight.detach().half()

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden @ self.packed.float().T


@pytest.mark.parametrize(("head", "kind"), [(Int8Head, "int8"), (PackedHead, "PackedHead")])
def test_a_quantised_head_is_refused_in_one_line(
    tiny_target: Path, head: Callable[[nn.Linear], nn.Module], kind: str
) -> None:
    model: Any = LlamaForCausalLM.from_pretrained(tiny_target)
    model.set_output_embeddings(head(model.lm_head))
    assert model(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 32), "it works as a model"
    with pytest.raises(InputError, match=rf"^odd: its LM head is quantised \({kind}\)"):
        Target(model, "odd")


def test_a_quantised_embedding_is_refused_too(tiny_target: Path) -> None:
    model: Any = LlamaForCausalLM.from_pretrained(tiny_target)
    weight = model.get_input_embeddings().weight
    model.get_input_embeddings().weight = nn.Parameter(weight.to(torch.int8), False)
    with pytest.raises(InputError, match=r"its embedding is quantised \(int8\)"):
        Target(model, "odd")


def test_the_scale_before_the_logits_is_found_whatever_does_the_scaling() -> None:
    sizes = {
        "vocab_size": 8,
        "hidden_size": 4,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "pad_token_id": 0,
    }
    wanted = torch.tensor([0.5, 2.0, 1.0, 3.0])
    phi: Any = PhiForCausalLM(PhiConfig(**sizes))  # LayerNorm under another name
    gemma: Any = GemmaForCausalLM(GemmaConfig(**sizes, num_key_value_heads=2, head_dim=2))
    granite: Any = GraniteForCausalLM(GraniteConfig(**sizes, logits_scaling=8.0))
    cohere: Any = CohereForCausalLM(CohereConfig(**sizes, logit_scale=0.0625))
    with torch.no_grad():
        phi.model.final_layernorm.weight.copy_(wanted)
        phi.model.final_layernorm.bias.fill_(0.7)
        gemma.model.norm.weight.copy_(wanted - 1)
        granite.model.norm.weight.copy_(wanted)
        cohere.model.norm.weight.copy_(wanted)
    for model, factor in ((phi, 1.0), (gemma, 1.0), (granite, 0.125), (cohere, 0.0625)):
        found = Target(model, "odd").final_norm_scale
        torch.testing.assert_close(found, wanted * factor, rtol=0, atol=1e-4)


def test_a_target_that_also_sees_images_is_read_through_its_language_model() -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 8, "num_attention_heads": 2}
    text = Gemma3TextConfig(
        vocab_size=24, intermediate_size=24, num_key_value_heads=1, head_dim=8, **sizes
    )
    vision = {**sizes, "intermediate_size": 16, "image_size": 28, "patch_size": 14}
    config = Gemma3Config(text_config=text.to_dict(), vision_config=vision)
    target = Target(Gemma3ForConditionalGeneration(config), "odd")
    target.check()
    shape = DraftShape.from_target_config(json.loads(config.to_json_string(use_diff=False)))
    assert (shape.hidden_size, shape.head_dim, shape.num_target_layers) == (16, 8, 8)
    assert (shape.target_vocab_size, shape.rope_theta) == (24, 1000000.0)


def test_heads_of_another_size_than_hidden_by_heads_keep_theirs_g17(inputs: Path) -> None:
    config = json.loads((inputs / "target_headdim" / "config.json").read_text())
    draft = Eagle3Draft(DraftShape.from_target_config(config), torch.arange(8))
    found = {k: tuple(v.shape) for k, v in draft.midlayer.self_attn.named_parameters()}
    assert found == {
        "q_proj.weight": (64, 64),
        "k_proj.weight": (32, 64),
        "v_proj.weight": (32, 64),
        "o_proj.weight": (32, 64),
    }


@torch.no_grad()
def test_the_teacher_sees_the_capped_logits_of_g18(inputs: Path) -> None:
    expect = json.loads((inputs / "g18_expect.json").read_text())
    words = json.loads((inputs / "target_softcap" / "tokenizer.json").read_text())["model"]["vocab"]
    target = load_target(str(inputs / "target_softcap"), dtype=torch.float32)
    ids = torch.tensor([words[word] for word in expect["capped_logits"]])
    hidden = target.forward(torch.tensor([[words[expect["last_word"]]]])).hidden[0]
    found = Teacher(target, ids, torch.float32, OnlineStates(target)).logits(hidden)
    capped = torch.tensor([list(expect["capped_logits"].values())])
    torch.testing.assert_close(found, capped, rtol=0, atol=1e-4)
    best, log_z = full_vocabulary(target, hidden)
    assert int(best) == words["red"]
    shares = torch.tensor(list(expect["probabilities"].values()))
    torch.testing.assert_close((found[0] - log_z).exp(), shares, rtol=0, atol=1e-5)
