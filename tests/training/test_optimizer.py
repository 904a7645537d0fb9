"""Which optimizer a run gets, and that its rates are set by one schedule only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from vtrim.errors import OptionError
from vtrim.training.optimizer import Rates, adam_of, check_optimizer
from vtrim.training.settings import TrainSettings


@pytest.mark.parametrize("rate", [0.0, float("nan"), float("inf"), -1e-4])
@pytest.mark.parametrize(("name", "option"), [("learning_rate", "--lr"), ("muon_lr", "--muon-lr")])
def test_a_learning_rate_that_cannot_train_is_refused(name: str, option: str, rate: float) -> None:
    with pytest.raises(OptionError, match=option):
        TrainSettings(**{name: rate})  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_muon_is_offered_where_deepspeed_clips_its_gradient_and_not_its_update(
    dtype: Any, stage: int
) -> None:
    settings = TrainSettings(optimizer="muon", dtype=dtype, zero_stage=stage)
    if (dtype, stage) in {("bf16", 1), ("fp32", 0)}:
        check_optimizer(settings)
        return
    with pytest.raises(OptionError, match="bf16 with stage 1, or fp32 with stage 0"):
        check_optimizer(settings)


def _made(written: dict[str, Any]) -> torch.optim.Optimizer:
    made: torch.optim.Optimizer = adam_of([nn.Parameter(torch.ones(2))], TrainSettings(), written)
    return made


def test_adam_decays_the_weights_unless_the_config_says_otherwise() -> None:
    assert type(_made({})) is torch.optim.AdamW
    assert type(_made({"type": "Adam"})) is torch.optim.AdamW
    assert type(_made({"type": "Adam", "params": {"adam_w_mode": False}})) is torch.optim.Adam
    assert _made({"type": "AdamW", "params": {"eps": 1e-6}}).param_groups[0]["eps"] == 1e-6


def _engine(scheduler: object | None) -> Any:
    groups = [{"lr": 0.02, "use_muon": True}, {"lr": 1e-4, "use_muon": False}]
    return SimpleNamespace(optimizer=SimpleNamespace(param_groups=groups), lr_scheduler=scheduler)


def test_every_group_gets_its_share_of_its_own_peak() -> None:
    rates = Rates(_engine(None))
    assert rates.set(0.5) == {"muon_lr": 0.01, "lr": 5e-5}
    assert rates.set(1.0) == {"muon_lr": 0.02, "lr": 1e-4}


def test_a_scheduler_of_the_users_config_is_left_alone() -> None:
    engine = _engine(object())
    assert Rates(engine).set(0.5) == {"muon_lr": 0.02, "lr": 1e-4}
    assert [g["lr"] for g in engine.optimizer.param_groups] == [0.02, 1e-4]
