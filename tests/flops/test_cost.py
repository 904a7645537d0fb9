from __future__ import annotations

import json
from pathlib import Path

import pytest

from vtrim.flops.cost import DraftStep, draft_bytes, draft_flops, lm_head_flops
from vtrim.shape import DraftShape

LLAMA_31_8B = DraftShape.from_target_config(
    {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "num_hidden_layers": 32,
        "max_position_embeddings": 131072,
    }
)
SMOLLM2_135M = DraftShape.from_target_config(
    {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "num_hidden_layers": 30,
        "max_position_embeddings": 8192,
    }
)


def test_the_components_of_llama_3_1_8b_are_those_of_table_1_to_the_unit() -> None:
    cost = draft_flops(LLAMA_31_8B)
    assert cost.components == {
        "fc": 100_663_296,
        "attention": 134_217_728,
        "mlp": 352_321_536,
        "lm_head": 1_050_673_152,
    }
    assert cost.total == 1_637_875_712
    assert cost.lm_head_share == pytest.approx(0.6415, abs=5e-5)


def test_smollm2_costs_66797568_flops_and_the_head_is_84_77_percent_of_it() -> None:
    cost = draft_flops(SMOLLM2_135M)
    assert cost.total == 66_797_568
    assert cost.lm_head_share == pytest.approx(0.8477, abs=5e-5)


@pytest.mark.parametrize(("k", "reduction"), [(13264, 0.5751), (32000, 0.4814), (128256, 0.0)])
def test_a_smaller_head_saves_the_share_that_the_paper_prints(k: int, reduction: float) -> None:
    saved = 1 - draft_flops(LLAMA_31_8B, k).total / draft_flops(LLAMA_31_8B).total
    assert saved == pytest.approx(reduction, abs=5e-5)


def test_each_row_of_the_head_adds_two_flops_a_hidden_unit() -> None:
    assert lm_head_flops(4096, 128256) == 1_050_673_152
    one_more = draft_flops(LLAMA_31_8B, 101).total - draft_flops(LLAMA_31_8B, 100).total
    assert one_more == lm_head_flops(4096, 1) == 8192


def test_a_recursive_step_runs_no_fc() -> None:
    cost = draft_flops(LLAMA_31_8B, step=DraftStep(recursive=True))
    assert cost.fc == 0
    assert cost.total == 1_637_875_712 - 100_663_296
    assert cost.lm_head_share == pytest.approx(0.6835, abs=5e-5)


def test_a_context_adds_two_products_of_the_query_width_for_each_cached_token() -> None:
    cost = draft_flops(LLAMA_31_8B, step=DraftStep(context=1000))
    assert cost.attention_scores == 4 * 32 * 128 * 1000
    assert cost.components["attention_scores"] == cost.attention_scores
    assert sum(cost.components.values()) == cost.total


def test_flops_grow_with_the_tokens_of_a_step_and_the_weights_are_read_once() -> None:
    eight = DraftStep(num_tokens=8)
    assert draft_flops(LLAMA_31_8B, step=eight).total == 8 * 1_637_875_712
    assert draft_bytes(LLAMA_31_8B, step=eight).total == draft_bytes(LLAMA_31_8B).total


def test_without_a_context_one_token_reads_as_many_16_bit_weight_bytes_as_it_costs_flops() -> None:
    assert draft_bytes(LLAMA_31_8B, 32000).components == draft_flops(LLAMA_31_8B, 32000).components


def test_a_context_is_read_as_keys_and_values_of_the_kv_heads() -> None:
    moved = draft_bytes(LLAMA_31_8B, step=DraftStep(context=10), bytes_per_value=2)
    assert moved.attention_scores == 2 * 10 * 2 * 8 * 128


def test_the_head_size_is_the_configs_own_where_it_is_not_hidden_over_heads(inputs: Path) -> None:
    config = json.loads((inputs / "target_headdim" / "config.json").read_text())
    shape = DraftShape.from_target_config(config)
    # q (64, 64), k and v (32, 64), o (32, 64)
    assert draft_flops(shape).attention == 2 * (64 * 64 + 2 * 32 * 64 + 32 * 64)


def test_the_toy_target_costs_79872_flops(inputs: Path) -> None:
    config = json.loads((inputs / "target_chain" / "config.json").read_text())
    shape = DraftShape.from_target_config(config)
    assert draft_flops(shape).total == 79872
    assert lm_head_flops(shape.hidden_size, 1) == 128
