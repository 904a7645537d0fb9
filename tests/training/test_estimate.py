"""The arithmetic of ``--plan`` against closed forms and against a real draft."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from vtrim.models.draft import Eagle3Draft
from vtrim.shape import DraftShape
from vtrim.training.batch import TrainSample, make_rows
from vtrim.training.data import Split
from vtrim.training.estimate import (
    count_data,
    disk_bytes,
    draft_flops_of_pass,
    draft_memory,
    draft_parameters,
    shown,
    target_flops_of_pass,
)
from vtrim.training.loss import CHUNK_ELEMENTS
from vtrim.training.run_plan import PlannedRun
from vtrim.training.settings import TrainSettings
from vtrim.training.store_format import sample_key

LLAMA = DraftShape(
    hidden_size=4096,
    target_hidden_size=4096,
    intermediate_size=14336,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    target_vocab_size=128256,
    num_target_layers=32,
    rms_norm_eps=1e-5,
    rope_theta=500000.0,
    max_position_embeddings=8192,
)
ODD = DraftShape(  # heads that do not fill the hidden size, a draft narrower than its target
    hidden_size=24,
    target_hidden_size=32,
    intermediate_size=40,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=10,
    target_vocab_size=50,
    num_target_layers=4,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
    max_position_embeddings=64,
)


@pytest.mark.parametrize(("shape", "k"), [(LLAMA, 32000), (ODD, 17), (ODD, 50)])
def test_the_parameters_are_the_models(shape: DraftShape, k: int) -> None:
    with torch.device("meta"):
        draft = Eagle3Draft(shape, torch.arange(k))
    found = draft_parameters(shape, k)
    by_part = {
        "fc": draft.fc,
        "attention": draft.midlayer.self_attn,
        "mlp": draft.midlayer.mlp,
        "lm_head": draft.lm_head,
        "total": draft,
    }
    for part, module in by_part.items():
        assert found[part] == sum(p.numel() for p in module.parameters()), part
    assert found["total"] == sum(found.values()) - found["total"]


def test_a_worked_example_is_counted_row_by_row() -> None:
    # MATH.md section 5: replies A0..D at 3..6 and B0 D2 at 10..11
    mask = np.array([0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1], dtype=bool)
    counts = count_data([(12, mask), (3, np.array([0, 1, 1], dtype=bool))], 3, "exact")
    assert counts.samples == 2
    assert counts.tokens == 15
    assert counts.reply_tokens == 8
    assert counts.rows == 4 + 1  # 2 3 4 9, and 0
    assert counts.pairs == 4 + 2 + 1 + 1
    assert counts.states == 8 + 1  # the replies, and the position after the one that others follow
    assert counts.keys == 3 + 4 + 5 + 10 + 1
    assert counts.longest == 12


@pytest.mark.parametrize("alignment", ["exact", "eagle"])
def test_the_counts_are_those_of_the_batches(alignment: Any) -> None:
    draw = np.random.default_rng(2)
    samples = []
    for index in range(20):
        mask = draw.random(int(draw.integers(5, 40))) < 0.7
        mask[-3:] = True
        samples.append(TrainSample(draw.integers(0, 9, mask.size), mask, index))
    rows = make_rows([[sample] for sample in samples], 4, alignment)
    counts = count_data([(s.ids.size, s.loss_mask) for s in samples], 4, alignment)
    assert counts.pairs == sum(rows.counts)
    assert counts.states == rows.first_row.size - 1
    assert counts.tokens == rows.length


def test_the_flops_of_a_pass_have_a_closed_form() -> None:
    mask = np.zeros(10, dtype=bool)
    mask[4:] = True  # rows 3..7 at step 0, 3..6 at step 1; states 4..9
    counts = count_data([(10, mask)], 2, "exact")
    assert (counts.rows, counts.pairs, counts.states, counts.keys) == (5, 9, 6, 4 + 5 + 6 + 7 + 8)
    found = draft_flops_of_pass(ODD, 17, counts, 2)
    d, query, key = 24, 60, 20
    assert found["fc"] == 2 * (2 * 96 * d) * 10
    assert found["mlp"] == 3 * (2 * 3 * d * 40) * 5 * 2
    assert found["lm_head"] == 3 * (2 * d * 17) * 9
    assert found["teacher"] == 2 * d * 17 * 6
    projections = 2 * (2 * d * (query + 2 * key) + query * d)
    assert found["attention"] == 3 * (projections * 10 + 2 * 2 * d * 2 * key * 5)
    assert found["attention_scores"] == 3 * 4 * query * 30 * 2
    target = target_flops_of_pass(LLAMA, counts)
    block = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    assert target["target"] == 2 * 32 * block * 10
    assert target["target_head"] == 2 * 4096 * 128256 * 6


def test_memory_falls_with_the_stage_as_zero_shards_it() -> None:
    def whole(stage: int, world: int, **changes: Any) -> dict[str, int]:
        return draft_memory(1200, 1200, TrainSettings(zero_stage=stage, **changes), world)

    assert whole(1, 1) == {"weights": 2400, "gradients": 4800, "master": 4800, "optimizer": 9600}
    assert whole(1, 4) == {"weights": 2400, "gradients": 4800, "master": 1200, "optimizer": 2400}
    assert whole(2, 4)["gradients"] == 1200
    assert whole(3, 4)["weights"] == 600
    assert whole(0, 4, dtype="fp32")["master"] == 0
    frozen = draft_memory(1200, 1000, TrainSettings(), 1)
    assert (frozen["weights"], frozen["optimizer"]) == (2400, 8000)


def test_the_disk_holds_one_checkpoint_more_than_is_kept() -> None:
    found = disk_bytes(100, 100, TrainSettings(dtype="fp32", zero_stage=1, keep_checkpoints=3))
    assert found == {"checkpoints": 4 * 1600, "best_weights": 4 * 400, "draft": 200}


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0.00 MiB"), (1 << 20, "1.00 MiB"), (3 << 30, "3.00 GiB")]
)
def test_bytes_are_shown_in_a_unit_that_suits_them(count: int, text: str) -> None:
    assert shown(count) == text


def planned(**changes: Any) -> PlannedRun:
    draw = np.random.default_rng(4)
    samples = []
    for index in range(30):
        mask = np.zeros(int(draw.integers(6, 30)), dtype=bool)
        mask[3:] = True
        samples.append(TrainSample(draw.integers(0, 50, mask.size), mask, index))
    settings = TrainSettings(**{"eval_samples": 4, "dtype": "fp32", **changes.pop("settings", {})})
    values: dict[str, Any] = {
        "settings": settings,
        "processes": 1,
        "shape": ODD,
        "target_shape": replace(ODD, hidden_size=32),
        "draft_vocab_size": 17,
        "target_parameters": 10_000,
        "split": Split(samples[:24], samples[24:], 0),
        **changes,
    }
    return PlannedRun(**values)


def test_what_is_cached_is_neither_written_nor_computed_nor_loaded_again() -> None:
    online, empty = planned(), planned(held=())
    keys = list(empty.samples)
    half, full = planned(held=keys[:14]), planned(held=keys)
    assert len(keys) == 24 + 4
    assert online.disk()["feature_cache"] == full.disk()["feature_cache"] == 0
    assert empty.disk()["feature_cache"] > half.disk()["feature_cache"] > 0
    assert [run._target_passes(3.0) for run in (empty, half, full)] == [1.0, 0.5, 0.0]
    assert full.memory("cpu")["target"] == 4 * 3200 < half.memory("cpu")["target"] == 40_000
    decoding = planned(held=keys, settings={"decode_eval": 2})
    assert decoding.memory("cpu")["target"] == 40_000


def test_a_chunk_of_logits_is_no_larger_than_the_batch_needs() -> None:
    small = planned(settings={"micro_batch": 1, "ttt_steps": 1}).memory("cpu")
    large = planned(settings={"micro_batch": 4000, "ttt_steps": 9}).memory("cpu")
    assert small["logits_chunk"] <= 3 * 4 * 30 * 17
    assert large["logits_chunk"] == 3 * 4 * CHUNK_ELEMENTS["cpu"]
    assert large["activations"] > 4000 * small["activations"]


def test_a_spread_target_leaves_embedding_and_head_whole_on_each_process() -> None:
    alone = planned(settings={"shard_target": True}).memory("cpu")["target"]
    four = planned(settings={"shard_target": True}, processes=4).memory("cpu")["target"]
    assert (alone, four) == (4 * 10_000, 4 * (3200 + 6800 // 4))


def test_a_short_run_meets_and_caches_only_its_own_samples() -> None:
    run = planned(held=(), settings={"max_steps": 2, "micro_batch": 4})
    assert run.steps == {"steps_per_pass": 6, "total_steps": 2}
    assert len(run.missing) == 2 * 4 + 4
    held = {sample_key(sample) for sample in run.split.heldout}
    assert sum(key in held for key in run.samples) == 4


def test_without_memory_for_states_every_pass_asks_the_target_again() -> None:
    assert planned(settings={"cache_gib": 0.0})._target_passes(3.0) == 3.0
    assert planned()._target_passes(3.0) == 1.0
    assert planned()._target_passes(0.25) == 0.25
