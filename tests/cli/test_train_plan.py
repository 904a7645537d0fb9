"""``vtrim train-draft --plan``: everything is said, nothing is loaded, nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vtrim.models.target
from vtrim.artifacts import Run

Vtrim = Callable[..., tuple[int, str, str]]


@pytest.fixture
def counted(
    tiny_target: Path,
    tiny_chat: Path,
    tmp_path: Path,
    vtrim: Vtrim,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A run that coverage and search have been through; its target's weights cannot be loaded."""
    run = tmp_path / "run"
    assert vtrim("coverage", tiny_chat, "--target", tiny_target, "--run", run)[0] == 0
    assert vtrim("search", "--run", run)[0] == 0

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the target was loaded")

    monkeypatch.setattr(vtrim_target(), "load_target", never)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return run


def vtrim_target() -> Any:
    return vtrim.models.target


def planned(call: Vtrim, run: Path, *options: object) -> dict[str, Any]:
    code, out, err = call("train-draft", "--run", run, "--plan", "--json", *options)
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_plan_says_what_the_run_is_and_takes(counted: Path, vtrim: Vtrim) -> None:
    before = sorted(path for path in counted.rglob("*"))
    found = planned(vtrim, counted, "--epochs", 3, "--ttt-steps", 4, "--zero-stage", 2)
    assert sorted(path for path in counted.rglob("*")) == before
    assert found["settings"]["ttt_steps"] == 4
    assert found["deepspeed_config"]["zero_optimization"]["stage"] == 2
    assert found["total_steps"] == 3 * found["steps_per_pass"] > 0
    assert found["data"]["samples"] + found["data"]["heldout"] + found["data"]["untrained"] > 100
    assert found["parameters"]["fc"] == 3 * 32 * 32
    assert found["target_parameters"] == 32 * 32 * 2 + 32 + 8 * (
        2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48 + 2 * 32
    )
    for part in ("flops", "memory", "disk", "parameters"):
        values = {name: value for name, value in found[part].items() if name != "free"}
        assert values.pop("total") == sum(values.values()) > 0, part
    assert found["time"]["seconds"] > 0
    assert found["disk"]["feature_cache"] == 0


def test_the_plan_counts_what_the_feature_store_lacks(
    counted: Path, vtrim: Vtrim, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    found = planned(vtrim, counted, "--cache-features", cache)
    assert not cache.exists()
    assert found["disk"]["feature_cache"] > found["target_states"] > 10_000
    assert found["data"]["cached"] == 0


def test_minutes_bound_the_time_and_the_tables_show_it(counted: Path, vtrim: Vtrim) -> None:
    assert planned(vtrim, counted, "--max-minutes", 0.5)["time"]["seconds"] == 30
    code, out, _ = vtrim("train-draft", "--run", counted, "--plan", "--max-minutes", 0.5)
    assert code == 0
    for words in ("30.0 seconds", "bounded by time", "lm head", "optimizer", "train_batch_size"):
        assert words in out, words


def test_more_processes_take_shares_of_the_optimiser(counted: Path, vtrim: Vtrim) -> None:
    alone = planned(vtrim, counted)
    four = planned(vtrim, counted, "--num-gpus", 4, "--device", "cpu")
    assert four["processes"] == 4
    assert four["memory"]["optimizer"] == alone["memory"]["optimizer"] // 4
    assert four["deepspeed_config"]["train_batch_size"] == 16


def test_what_the_run_refuses_the_plan_refuses(counted: Path, vtrim: Vtrim) -> None:
    Run(counted).vocab.unlink()
    code, out, err = vtrim("train-draft", "--run", counted, "--plan")
    assert (code, out) == (2, "")
    assert "vtrim search" in err
