"""DeepSpeed's arithmetic and contradictions are settled before any model is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vtrim.errors import OptionError
from vtrim.training.ds_config import deepspeed_config, settings_from
from vtrim.training.settings import TrainSettings


def _resolve(user: dict[str, Any], world: int = 1) -> dict[str, Any]:
    settings = TrainSettings(**settings_from(user))
    return deepspeed_config(settings, world, user, "ds.json")


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


def test_an_auto_without_a_value_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match=r"zero_optimization\.reduce_bucket_size"):
        _resolve({"zero_optimization": {"reduce_bucket_size": "auto"}})


def test_bf16_and_fp16_together_are_refused(inputs: Path) -> None:
    with pytest.raises(OptionError, match="bf16 and fp16"):
        _resolve(_user(inputs, "g19_ds_both_halves.json"))


def test_fp16_alone_is_refused_because_the_states_overflow_it() -> None:
    with pytest.raises(OptionError, match="fp16"):
        _resolve({"fp16": {"enabled": True}})
