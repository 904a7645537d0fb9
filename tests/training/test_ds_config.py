"""DeepSpeed's arithmetic and contradictions are settled before any model is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vtrim.errors import InputError, OptionError
from vtrim.training.ds_config import deepspeed_config, read_user_config, settings_from
from vtrim.training.ds_sections import complete_scheduler
from vtrim.training.settings import TrainSettings

HUGGING_FACE = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "steps_per_print": 2000,
    "wall_clock_breakdown": False,
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
    },
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {
            "warmup_min_lr": "auto",
            "warmup_max_lr": "auto",
            "warmup_num_steps": "auto",
            "total_num_steps": "auto",
        },
    },
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16, "hysteresis": 2},
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {"device": "cpu", "pin_memory": "auto"},
        "overlap_comm": True,
        "contiguous_gradients": True,
        "sub_group_size": 1e9,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
        "stage3_max_live_parameters": 1e9,
        "stage3_gather_16bit_weights_on_model_save": True,
    },
    "activation_checkpointing": {"partition_activations": False, "cpu_checkpointing": False},
}
"""The sections and "auto"s of the files that users of Hugging Face's Trainer have at hand."""


def _resolve(
    user: dict[str, Any], world: int = 1, hidden_size: int | None = None, **typed: Any
) -> dict[str, Any]:
    return _whole(user, world, hidden_size, **typed)[1]


def _whole(
    user: dict[str, Any], world: int = 1, hidden_size: int | None = None, **typed: Any
) -> tuple[TrainSettings, dict[str, Any]]:
    """What the command does with the file and the options that were typed."""
    settings = TrainSettings(**{**settings_from(user, typed, world, "ds.json"), **typed})
    return settings, deepspeed_config(settings, world, user, "ds.json", hidden_size)


def _user(inputs: Path, name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((inputs / name).read_text())
    return value


@pytest.mark.parametrize("world", [1, 2, 4])
def test_a_consistent_config_gives_an_effective_batch_of_8_times_the_processes(
    inputs: Path, world: int
) -> None:
    config = _resolve(_user(inputs, "g19_ds_ok.json"), world)
    assert config["train_batch_size"] == 8 * world
    assert config["zero_optimization"]["stage"] == 1


def test_a_batch_size_that_does_not_multiply_out_names_the_three_numbers(inputs: Path) -> None:
    with pytest.raises(OptionError, match=r"64 .* 4 .* 8 .* 1 = 32"):
        _resolve(_user(inputs, "g19_ds_mismatch.json"))


def test_every_auto_is_resolved(inputs: Path) -> None:
    config = _resolve(_user(inputs, "g19_ds_auto.json"), 2)
    assert "auto" not in json.dumps(config)
    assert config["train_batch_size"] == 2 * TrainSettings.micro_batch
    assert config["zero_optimization"]["offload_optimizer"] == {"device": "cpu"}
    assert config["fp16"] == {"enabled": False}


def test_bf16_and_fp16_together_are_refused(inputs: Path) -> None:
    with pytest.raises(OptionError, match="bf16 and fp16"):
        _resolve(_user(inputs, "g19_ds_both_halves.json"))


def test_every_auto_of_a_hugging_face_file_gets_the_value_hugging_face_gives_it() -> None:
    settings, config = _whole(HUGGING_FACE, 2, hidden_size=64, learning_rate=3e-4, warmup=0.1)
    whole = complete_scheduler(config, settings, total_steps=205)
    assert "auto" not in json.dumps(whole)
    assert whole["optimizer"]["params"] == {
        "lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.0,
    }  # fmt: skip
    assert whole["scheduler"]["params"] == {
        "warmup_min_lr": 0.0, "warmup_max_lr": 3e-4, "warmup_num_steps": 21, "total_num_steps": 205,
    }  # fmt: skip
    zero = whole["zero_optimization"]
    assert zero["reduce_bucket_size"] == 64 * 64
    assert zero["stage3_prefetch_bucket_size"] == 3686
    assert zero["stage3_param_persistence_threshold"] == 640
    assert "pin_memory" not in zero["offload_param"]  # DeepSpeed's own default


def test_an_auto_without_a_value_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match="communication_data_type"):
        _resolve({"communication_data_type": "auto"})


@pytest.mark.parametrize(
    ("user", "typed", "micro", "accum"),
    [
        ({"train_batch_size": 32}, {}, 16, 1),
        ({"train_batch_size": 32}, {"micro_batch": 4}, 4, 4),
        ({"train_batch_size": 32, "gradient_accumulation_steps": 2}, {}, 8, 2),
        ({"train_batch_size": 32, "train_micro_batch_size_per_gpu": "auto"}, {}, 16, 1),
        ({"train_micro_batch_size_per_gpu": 3}, {"grad_accum": 5}, 3, 5),
    ],
)
def test_batch_sizes_that_are_left_out_follow_from_those_given(
    user: dict[str, Any], typed: dict[str, Any], micro: int, accum: int
) -> None:
    settings, config = _whole(user, 2, **typed)
    assert (settings.micro_batch, settings.grad_accum) == (micro, accum)
    assert config["train_batch_size"] == 2 * micro * accum


def test_what_the_file_says_of_the_optimizer_becomes_the_settings() -> None:
    params = {"lr": 2e-4, "betas": [0.8, 0.99], "weight_decay": 0.1}
    settings = _whole({"optimizer": {"type": "AdamW", "params": params}})[0]
    assert (settings.learning_rate, settings.beta1, settings.beta2) == (2e-4, 0.8, 0.99)
    assert settings.weight_decay == 0.1
    muon = {"type": "Muon", "params": {"lr": 0.03, "adam_lr": 1e-3}}
    settings = _whole({"optimizer": muon})[0]
    assert (settings.optimizer, settings.muon_lr, settings.learning_rate) == ("muon", 0.03, 1e-3)


def test_another_optimizer_and_the_monitors_reach_deepspeed_as_they_are() -> None:
    user = {
        "optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}},
        "csv_monitor": {"enabled": True, "output_path": "logs", "job_name": "j"},
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    }
    config = _resolve(user)
    assert {key: config[key] for key in user} == user


@pytest.mark.parametrize(
    ("user", "typed", "words"),
    [
        ({"zero_optimisation": {}}, {}, ["zero_optimisation", "'zero_optimization'"]),
        ({"bfloat16": {"enabled": True}}, {}, ["bfloat16", "'bf16'"]),
        ({"zero_optimization": {"reduce_bucket": 3}}, {}, ["reduce_bucket", "reduce_bucket_size"]),
        (
            {"zero_optimization": {"stage": 2, "offload_optimizer": {"devise": "cpu"}}},
            {},
            ["devise", "zero_optimization.offload_optimizer", "'device'"],
        ),
        ({"csv_monitor": {"output": "x"}}, {}, ["output", "csv_monitor", "'output_path'"]),
        (
            {"optimizer": {"type": "AdamW", "params": {"learning_rate": 1}}},
            {},
            ["learning_rate", "optimizer.params", "lr"],
        ),
        ({"optimizer": {"type": "AdanW"}}, {}, ["AdanW", "'AdamW'"]),
        ({"optimizer": {"kind": "AdamW"}}, {}, ["kind", "optimizer", "type"]),
        ({"optimizer": {"params": {}}}, {}, ["optimizer", "type"]),
        ({"scheduler": {"type": "WarmupLR", "params": []}}, {}, ["scheduler.params", "object"]),
        ({"optimizer": {"type": "Adam", "params": {"betas": [0.9]}}}, {}, ["betas", "two"]),
        ({"scheduler": {"type": "WarmupDelayLR"}}, {}, ["WarmupDelayLR", "'WarmupDecayLR'"]),
        ({"scheduler": {"type": "WarmupDecayLR"}}, {}, ["total_num_steps", "missing"]),
        ({"scheduler": {"type": "WarmupLR", "params": {"steps": 3}}}, {}, ["steps", "scheduler"]),
        ({"data_types": {"grad_dtype": "fp32"}}, {}, ["grad_dtype", "grad_accum_dtype"]),
        ({"amp": {"enabled": True}}, {}, ["amp", "--dtype"]),
        ({"activation_checkpointing": {"cpu_checkpointing": True}}, {}, ["one layer"]),
        ({"fp16": {"enabled": True}}, {}, ["fp16", "range"]),
        ({"zero_optimization": True}, {}, ["zero_optimization", "object"]),
        ({"zero_optimization": {"stage": 5}}, {}, ["zero_optimization.stage 5", "0", "3"]),
        ({"zero_optimization": {"stage": "two"}}, {}, ["zero_optimization.stage", "two"]),
        (
            {"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}},
            {},
            ["offload_optimizer", "stage 1 or 2 or 3", "the stage is 0"],
        ),
        (
            {"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}},
            {},
            ["offload_param", "stage 3", "the stage is 2"],
        ),
        (
            {"zero_optimization": {"stage": 1, "stage3_prefetch_bucket_size": 5}},
            {},
            ["stage3_prefetch_bucket_size", "stage 3", "the stage is 1"],
        ),
        (
            {"zero_optimization": {"stage": 2, "cpu_offload": True}},
            {},
            ["cpu_offload", "offload_optimizer"],
        ),
        (
            {"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}},
            {},
            ["nvme", "cpu"],
        ),
        (
            {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}},
            {"learning_rate": 3e-4},
            ["optimizer.params.lr", "0.001", "--lr", "0.0003"],
        ),
        (
            {"optimizer": {"type": "SGD", "params": {"lr": 1e-3}}},
            {"optimizer": "muon"},
            ["optimizer.type", "SGD", "--optimizer muon"],
        ),
        ({"optimizer": {"params": {"lr": 0}, "type": "Adam"}}, {}, ["optimizer.params.lr 0"]),
        ({"optimizer": {"params": {"lr": float("nan")}, "type": "Adam"}}, {}, ["lr nan"]),
        (
            {"optimizer": {"type": "Adam", "params": {"lr": "1"}}},
            {},
            ["optimizer.params.lr", "'1'"],
        ),
        (
            {"optimizer": {"type": "Adam", "params": {"max_grad_norm": 1}}},
            {},
            ["gradient_clipping"],
        ),
        ({"gradient_clipping": 1.0}, {"clip": 0.7}, ["gradient_clipping", "1.0", "--clip", "0.7"]),
        ({"bf16": {"enabled": True}}, {"dtype": "fp32"}, ["bf16.enabled", "--dtype"]),
        (
            {"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 3}}},
            {"warmup": 0.2},
            ["scheduler", "--warmup"],
        ),
        (
            {"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}},
            {"max_minutes": 3.0},
            ["auto", "--max-minutes", "--max-steps"],
        ),
        (
            {"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": "auto"}}},
            {},
            ["cycle_min_lr", "auto"],
        ),
        (
            {
                "optimizer": {"type": "Muon", "params": {"lr": 0.02}},
                "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 3}},
            },
            {},
            ["WarmupLR", "Muon", "WarmupCosineLR"],
        ),
        ({"train_batch_size": 30}, {}, ["train_batch_size 30", "processes 4"]),
        ({"train_batch_size": "32"}, {}, ["train_batch_size", "'32'"]),
        ({"train_batch_size": 0}, {}, ["train_batch_size", "0"]),
        ({"bf16": {"enabled": True, "bf16_optimizer_states": True}}, {}, ["bf16_optimizer_states"]),
        ({"bf16": {"check_grad_overflow": False}}, {}, ["bf16.check_grad_overflow", "finite"]),
        ({"comet": {"enabled": True}}, {}, ["comet", "pip install comet_ml"]),
        ({"flops_profiler": {"enabled": True}}, {}, ["flops_profiler", "no effect", "--plan"]),
        ({"wall_clock_breakdown": True}, {}, ["wall_clock_breakdown", "no effect"]),
        (
            {"scheduler": {"type": "StepLR", "params": {"step_size": 2}}},
            {},
            ["StepLR", "stage 0", "WarmupLR"],
        ),
        (
            {"scheduler": {"type": "StepLR", "params": {"step_size": 2}}},
            {"zero_stage": 0},
            ["StepLR", "fp32", "bf16 here"],
        ),
        (
            {"scheduler": {"type": "StepLR", "params": {"step_size": 0}}},
            {"zero_stage": 0, "dtype": "fp32"},
            ["scheduler.params", "zero"],
        ),
        ({"bf16": {"enabled": "no"}}, {}, ["bf16.enabled", "'no'", "true or false"]),
        ({"csv_monitor": {"enabled": 1}}, {}, ["csv_monitor.enabled is 1", "true or false"]),
        (
            {"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "ten"}}},
            {},
            ["scheduler.params"],
        ),
        (
            {"optimizer": {"type": "SGD", "params": {"momentum": "x"}}},
            {},
            ["optimizer.params"],
        ),
        (
            {"optimizer": {"type": "AdamW", "params": {"eps": -1}}},
            {},
            ["optimizer.params", "epsilon", "-1"],
        ),
        (
            {"optimizer": {"type": "Muon", "params": {"momentum": "x"}}},
            {},
            ["optimizer.params", "momentum", "'x'"],
        ),
        ({"optimizer": {"type": "Lion", "params": {"foo": 1}}}, {}, ["foo", "optimizer.params"]),
        (
            {"optimizer": {"type": "Lion", "params": {"weight_decay": True}}},
            {},
            ["optimizer.params", "weight_decay"],
        ),
        ({"steps_per_print": "x"}, {}, ["steps_per_print", "'x'", "whole number"]),
        ({"prescale_gradients": "x"}, {}, ["prescale_gradients", "true or false"]),
        ({"gradient_predivide_factor": 0}, {}, ["gradient_predivide_factor", "above 0"]),
        ({"communication_data_type": 5}, {}, ["communication_data_type", "fp32"]),
        (
            {"data_types": {"grad_accum_dtype": "int7"}},
            {},
            ["data_types.grad_accum_dtype", "int7", "bf16"],
        ),
        (
            {"data_types": {"grad_accum_dtype": "fp32"}},
            {"zero_stage": 0},
            ["data_types.grad_accum_dtype", "fp32", "bf16", "stage 1"],
        ),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_a_config_that_cannot_be_honoured_is_refused_by_key_and_remedy(
    user: dict[str, Any], typed: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(OptionError) as refused:
        _resolve(user, 4, **typed)
    line = str(refused.value)
    assert line.startswith("ds.json: ")
    assert "\n" not in line
    assert all(word in line for word in words), line


@pytest.mark.parametrize(
    ("user", "typed"),
    [
        (
            {"scheduler": {"type": "StepLR", "params": {"step_size": 2}}},
            {"zero_stage": 0, "dtype": "fp32"},
        ),
        ({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}}, {}),
        (
            {
                "scheduler": {
                    "type": "OneCycle",
                    "params": {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3},
                }
            },
            {},
        ),
        ({"optimizer": {"type": "Lion", "params": {"lr": "auto", "betas": [0.9, 0.99]}}}, {}),
        ({"optimizer": {"type": "Lamb", "params": {"bias_correction": False}}}, {}),
        ({"optimizer": {"type": "SGD", "params": {"momentum": 0.9, "nesterov": True}}}, {}),
        ({"flops_profiler": {"enabled": False}, "wall_clock_breakdown": False}, {}),
        ({"data_types": {"grad_accum_dtype": "bf16"}, "steps_per_print": 5}, {}),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_a_config_that_deepspeed_runs_with_is_taken(
    user: dict[str, Any], typed: dict[str, Any]
) -> None:
    _resolve(user, 4, **typed)


def test_a_key_that_stands_twice_or_a_list_is_no_config(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"bf16": {"enabled": true}, "bf16": {"enabled": false}}')
    with pytest.raises(OptionError, match="'bf16' stands there twice"):
        read_user_config(path)
    path.write_text("[1]")
    with pytest.raises(InputError, match="object"):
        read_user_config(path)
