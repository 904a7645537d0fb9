"""The lean forward gives the Hugging Face forward's states, or says why it does not serve."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import DynamicCache

from vtrim.models import lean_linear
from vtrim.models.lean import LeanTarget, fast_target
from vtrim.models.lean_check import difference
from vtrim.models.skipping import without_layers
from vtrim.models.smollm2 import smollm2_folder
from vtrim.models.target import Target, load_target

V = 40
SIZES: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
PARTIAL = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}

LEAN: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"tie_word_embeddings": False}),
    "llama, tied": ("Llama", {"tie_word_embeddings": True}),
    "llama, llama3 rope": ("Llama", {"rope_parameters": LLAMA3}),
    "llama, linear rope": ("Llama", {"rope_parameters": LINEAR}),
    "llama, biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, one key head": ("Llama", {"num_key_value_heads": 1}),
    "llama, no shared heads": ("Llama", {"num_key_value_heads": 4, "head_dim": 16}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "phi3": ("Phi3", {"sliding_window": None}),
    "phi3, half of each head turns": ("Phi3", {"sliding_window": None, "rope_parameters": PARTIAL}),
}
OTHERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "gemma2": ("Gemma2", {"head_dim": 8}, "model_type 'gemma2'"),
    "granite": ("Granite", {"logits_scaling": 4.0}, "model_type 'granite'"),
    "mistral, windows": ("Mistral", {"sliding_window": 4}, "sliding window"),
    "qwen2, windows": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2},
        "sliding window",
    ),
    "llama, gelu": ("Llama", {"hidden_act": "gelu"}, "activation is gelu"),
    "mixtral": ("Mixtral", {"num_local_experts": 2}, "model_type 'mixtral'"),
}


def tiny(kind: str, changes: dict[str, Any], dtype: torch.dtype = torch.float32) -> Target:
    """A random model with biases and norms away from their start values."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES | changes)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).to(dtype)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                weight += 0.3 * torch.randn_like(weight)
            elif weight.dim() == 2:
                weight *= 5
    return Target(model, kind.lower())


def lean_of(target: Target) -> LeanTarget:
    """The target's lean form, which nothing may keep from it."""
    said: list[str] = []
    lean = fast_target(target, said.append)
    assert said == []
    assert isinstance(lean, LeanTarget)
    return lean


@torch.inference_mode()
def greedy(target: Target, prompt: list[int], count: int) -> list[int]:
    """Tokens of plain decoding, one a forward."""
    cache = DynamicCache(config=target.config)
    ids, new = list(prompt), list(prompt)
    for _ in range(count):
        states = target.forward(torch.tensor([new]), cache=cache)
        new = [int(target.logits(states.hidden[0, -1]).argmax())]
        ids += new
    return ids


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("name", LEAN)
def test_a_lean_forward_agrees_without_cache_with_cache_and_on_trees(name: str, pack: bool) -> None:
    reference, twin = tiny(*LEAN[name]), tiny(*LEAN[name])
    assert difference(reference, LeanTarget(twin, pack=pack)) is None


@pytest.mark.parametrize("name", LEAN)
def test_greedy_tokens_in_fp32_are_those_of_the_hugging_face_forward(name: str) -> None:
    reference, lean = tiny(*LEAN[name]), lean_of(tiny(*LEAN[name]))
    for prompt in ([5], [7, 30, 7, 30, 7, 12, 9]):
        assert greedy(lean, prompt, 20) == greedy(reference, prompt, 20)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes_are_lean_too(dtype: torch.dtype) -> None:
    lean = fast_target(tiny("Llama", {}, dtype), lambda _: None)
    assert isinstance(lean, LeanTarget)
    states = lean.forward(torch.tensor([[1, 2, 3]]))
    assert states.hidden.dtype == states.aux.dtype == lean.logits(states.hidden).dtype == dtype


def test_fused_weights_leave_the_hugging_face_forward_as_it_was() -> None:
    target, ids = tiny("Qwen2", {}), torch.tensor([[3, 9, 27]])
    before = target.forward(ids)
    lean = LeanTarget(target, pack=False)
    after = target.forward(ids)
    assert torch.equal(before.hidden, after.hidden)
    assert torch.equal(before.aux, after.aux)
    attention = lean.layers[0].self_attn
    storages = {m.weight.untyped_storage().data_ptr() for m in (attention.q_proj, attention.v_proj)}
    assert len(storages) == 1


def test_a_ragged_batch_with_its_masks_gives_each_row_its_own_states() -> None:
    """Two sequences of 3 and 5 tokens side by side, padding behind the shorter."""
    lean = lean_of(tiny("Llama", {}))
    texts = [[4, 8, 15], [16, 23, 30, 2, 6]]
    ids = torch.tensor([[*texts[0], 0, 0], texts[1]])
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    mask = causal.expand(2, 1, 5, 5).clone()
    mask[0, 0, 3:] = False  # a row of padding that attends to nothing
    together = lean.forward(ids, attention_mask=mask, cache=DynamicCache(config=lean.config))
    assert together.hidden.isfinite().all()
    for row, text in enumerate(texts):
        alone = lean.forward(torch.tensor([text]))
        torch.testing.assert_close(together.hidden[row, : len(text)], alone.hidden[0])


def test_a_padding_mask_goes_through_the_hugging_face_forward() -> None:
    reference, lean = tiny("Llama", {}), lean_of(tiny("Llama", {}))
    ids, mask = torch.tensor([[0, 0, 5, 6]]), torch.tensor([[0, 0, 1, 1]])
    positions = torch.tensor([[0, 0, 0, 1]])
    expected = reference.forward(ids, attention_mask=mask, position_ids=positions)
    found = lean.forward(ids, attention_mask=mask, position_ids=positions)
    assert torch.equal(expected.hidden, found.hidden)
    assert torch.equal(expected.aux, found.aux)


def test_a_target_without_auxiliary_states_stays_without() -> None:
    target = tiny("Llama", {})
    lean = lean_of(Target(target.model, "no aux", ()))
    assert lean.forward(torch.tensor([[1, 2]])).aux.shape == (1, 2, 0)


def test_a_lean_target_passes_the_check_of_every_target_and_is_made_once() -> None:
    lean = lean_of(tiny("Qwen3", {}))
    lean.check()
    assert fast_target(lean, pytest.fail) is lean


def test_a_lean_target_without_some_blocks_shares_the_packed_weights() -> None:
    reference, lean = tiny("Llama", {}), lean_of(tiny("Llama", {}))
    shorter = without_layers(lean, [1, 5])
    assert isinstance(shorter, LeanTarget)
    assert shorter.blocks == [lean.blocks[block] for block in (0, 2, 3, 4, 6)]
    assert difference(without_layers(reference, [1, 5]), shorter) is None
    assert len(lean.blocks) == 7


@pytest.mark.parametrize("name", OTHERS)
def test_other_targets_keep_their_forward_and_the_note_says_why(name: str) -> None:
    kind, changes, why = OTHERS[name]
    target, said = tiny(kind, changes), list[str]()
    assert fast_target(target, said.append) is target
    (line,) = said
    assert "transformers' own forward" in line
    assert why in line


def test_a_model_that_computes_something_else_is_found_out() -> None:
    target, said = tiny("Llama", {}), list[str]()

    def doubled(_module: Any, _args: Any, output: Tensor) -> Tensor:
        return 2 * output

    target.layers[3].mlp.register_forward_hook(doubled)
    assert fast_target(target, said.append) is target
    (line,) = said
    assert "final states without a cache differ by" in line


def test_a_quantised_layer_keeps_the_forward() -> None:
    class Other(torch.nn.Linear):
        """A layer with the same weights and another product."""

    target, said = tiny("Llama", {}), list[str]()
    target.layers[2].mlp.down_proj = Other(48, 32, bias=False)
    assert fast_target(target, said.append) is target
    assert "no plain linear" in said[0]


def test_weights_that_do_not_fit_twice_are_not_packed_and_the_note_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lean_linear, "_RESERVE", 2**62)
    target, said = tiny("Llama", {}), list[str]()
    assert isinstance(fast_target(target, said.append), LeanTarget)
    (line,) = said
    assert "not packed" in line
    assert "GiB are free" in line


def test_the_available_memory_is_a_number_of_bytes_below_the_machines() -> None:
    free = lean_linear.available_memory()
    assert free is None or 2**20 < free < 2**50


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_packed_product_is_the_plain_one(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    weight, bias = torch.randn(48, 64, dtype=dtype) / 8, torch.randn(48, dtype=dtype)
    assert lean_linear.cannot_pack(weight, 0) is None
    for rows in (1, 5, 40):
        x = torch.randn(2, rows, 64, dtype=dtype)
        packed = lean_linear.product(weight, bias, pack=True)(x)
        plain = lean_linear.product(weight, bias, pack=False)(x)
        torch.testing.assert_close(packed, plain)


def test_a_dtype_that_cannot_be_packed_is_said() -> None:
    why = lean_linear.cannot_pack(torch.zeros(2, 2, dtype=torch.float64), 32)
    assert why == "this CPU multiplies no packed float64 weights"


def test_a_discarded_lean_target_frees_its_packed_weights() -> None:
    target = tiny("Llama", {})
    lean_of(target)
    gc.collect()
    assert not [o for o in gc.get_objects() if type(o) is LeanTarget and o.model is target.model]


@pytest.fixture(scope="module")
def stories(data: Path) -> Callable[[], Target]:
    """A tiny real Llama."""
    return lambda: load_target(str(data / "model" / "stories260k"), dtype=torch.float32)


def test_greedy_stories_are_the_hugging_face_forwards(stories: Callable[[], Target]) -> None:
    reference, lean = stories(), lean_of(stories())
    for prompt in ([1], [1, 403, 407], [1, 261, 378, 440]):
        assert greedy(lean, prompt, 100) == greedy(reference, prompt, 100)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_smollm2_is_lean_and_its_greedy_tokens_in_fp32_are_the_same(dtype: torch.dtype) -> None:
    folder = smollm2_folder()
    if not (folder / "model.safetensors").exists():
        pytest.skip("the built-in target is not unpacked here (VTRIM_CACHE; run `vtrim demo`)")
    reference = load_target(str(folder), dtype=dtype)
    lean = lean_of(load_target(str(folder), dtype=dtype))
    tokens = greedy(lean, [1, 4093, 198, 504, 3575], 40)
    if dtype == torch.float32:
        assert tokens == greedy(reference, [1, 4093, 198, 504, 3575], 40)
