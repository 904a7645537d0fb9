"""The commands a user types, through the real console script, on a tiny real model."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

VTRIM = Path(sys.executable).with_name("vtrim")
TRAIN = ["--max-steps", "12", "--micro-batch", "4", "--ttt-steps", "3", "--lr", "3e-3"]
TRAIN += ["--eval-every", "6", "--save-every", "4", "--dtype", "fp32"]


def vtrim(*arguments: str, run: Path, code: int = 0) -> dict[str, Any]:
    """Runs a command with --json; its one JSON object."""
    environment = {**os.environ, "VTRIM_RUN": str(run), "OMP_NUM_THREADS": "1"}
    command = [str(VTRIM), *arguments, "--json"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == code, done.stderr
    value: dict[str, Any] = json.loads(done.stdout) if code == 0 else {}
    return value


@pytest.fixture(scope="module")
def counted(tiny_target: Path, tiny_chat: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder after coverage and search."""
    run = tmp_path_factory.mktemp("run")
    vtrim("coverage", str(tiny_chat), "--target", str(tiny_target), run=run)
    vtrim("search", "--alpha", "0.6", "--cmin", "0.8", run=run)
    return run


@pytest.mark.slow
def test_four_commands_go_from_chat_data_to_measured_decoding(counted: Path) -> None:
    trained = vtrim("train-draft", *TRAIN, run=counted)
    assert trained["steps"] == 12
    assert trained["heldout_joint_prefix"] >= 1.0
    assert (counted / "draft" / "model.safetensors").exists()
    assert "vllm serve" in (counted / "draft" / "README.md").read_text()
    measured = vtrim(
        "eval", "--acceptor", "dropmatch", "--num-prompts", "2", "--max-new-tokens", "8",
        run=counted,
    )  # fmt: skip
    assert measured["acceptance_length"] >= 1.0
    assert measured["exact"]["acceptance_length"] >= 1.0
    page = vtrim("report", run=counted)
    assert Path(page["artifact"]).read_text().startswith("<!doctype html>")


def _copy_run(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("train", "draft", "eval"))
    return target


def _wait_for_step(process: subprocess.Popen[Any], log: Path, step: int) -> None:
    """Returns when the log names the step or the process has ended; fails after two minutes."""
    deadline = time.monotonic() + 120
    while process.poll() is None and not (log.exists() and f'"step": {step},' in log.read_text()):
        assert time.monotonic() < deadline, "training did not get that far"
        time.sleep(0.01)


def _losses(run: Path) -> list[tuple[str, int, float]]:
    lines = (run / "train" / "metrics.jsonl").read_text().splitlines()
    return [(e["kind"], e["step"], e["loss"]) for e in map(json.loads, lines)]


@pytest.mark.slow
def test_a_killed_run_resumes_and_ends_with_the_same_loss_curve(
    counted: Path, tmp_path: Path
) -> None:
    whole, killed = (_copy_run(counted, tmp_path / name) for name in ("whole", "killed"))
    # states kept from another batch differ in the last bit, so the bytes are compared without them
    options = [*TRAIN[2:], "--max-steps", "60", "--cache-gib", "0"]
    vtrim("train-draft", *options, run=whole)
    environment = {**os.environ, "VTRIM_RUN": str(killed), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [str(VTRIM), "train-draft", *options],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    log, at = killed / "train" / "metrics.jsonl", random.Random(time.time()).randint(5, 40)
    _wait_for_step(process, log, at)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "the run ended before it could be killed"
    assert not (killed / "draft").exists()
    vtrim("train-draft", *options, run=killed)
    assert _losses(killed) == _losses(whole)
    weights = "draft/model.safetensors"
    assert (killed / weights).read_bytes() == (whole / weights).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["1", "2", "3"])
def test_two_processes_learn_what_one_with_two_accumulation_steps_learns(
    counted: Path, tmp_path: Path, stage: str
) -> None:
    one, two = (_copy_run(counted, tmp_path / name) for name in ("one", "two"))
    vtrim("train-draft", *TRAIN, "--zero-stage", stage, "--grad-accum", "2", run=one)
    result = vtrim("train-draft", *TRAIN, "--zero-stage", stage, "--num-gpus", "2", run=two)
    assert result["steps"] == 12
    for (kind, step, left), (_, _, right) in zip(_losses(one), _losses(two), strict=True):
        assert left == pytest.approx(right, rel=1e-4), f"{kind} loss at step {step}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [["--zero-stage", "0"], ["--zero-stage", "2"], ["--zero-stage", "1", "--optimizer", "muon"]],
    ids=" ".join,
)
def test_bf16_training_lowers_the_loss(counted: Path, tmp_path: Path, options: list[str]) -> None:
    run = _copy_run(counted, tmp_path / "run")
    typed = [*TRAIN[2:-2], "--max-steps", "30", "--dtype", "bf16", *options]
    vtrim("train-draft", *typed, run=run)
    losses = [loss for kind, _, loss in _losses(run) if kind == "train"]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


@pytest.mark.slow
def test_resuming_with_another_learning_rate_is_refused_by_name(
    counted: Path, tmp_path: Path
) -> None:
    run = _copy_run(counted, tmp_path / "run")
    vtrim("train-draft", *TRAIN, run=run)
    environment = {**os.environ, "VTRIM_RUN": str(run), "OMP_NUM_THREADS": "1"}
    changed = [*TRAIN, "--lr", "1e-3"]
    done = subprocess.run(
        [str(VTRIM), "train-draft", *changed],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert "error: --lr differs: 0.001 now, 0.003" in done.stderr


@pytest.mark.slow
def test_a_shallow_real_target_goes_through_the_chain_with_its_own_auxiliary_layers(
    data: Path, tiny_chat: Path, tmp_path: Path
) -> None:
    target = data / "model" / "stories260k"
    vtrim("coverage", str(tiny_chat), "--target", str(target), run=tmp_path)
    vtrim("search", "--cmin", "0.9", run=tmp_path)
    vtrim("train-draft", *TRAIN, run=tmp_path)
    config = json.loads((tmp_path / "draft" / "config.json").read_text())
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2, 4]
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 1, 3]
    measured = vtrim(
        "eval", "--num-prompts", "3", "--max-new-tokens", "12", "--dtype", "fp32", run=tmp_path
    )
    assert measured["identical_to_plain"] == 1.0


@pytest.mark.slow
def test_ctrl_c_saves_the_state_and_the_same_line_goes_on(counted: Path, tmp_path: Path) -> None:
    run = _copy_run(counted, tmp_path / "run")
    environment = {**os.environ, "VTRIM_RUN": str(run), "OMP_NUM_THREADS": "1"}
    options = [*TRAIN[2:], "--save-every", "100000"]
    process = subprocess.Popen(
        [str(VTRIM), "train-draft", "--max-steps", "100000", *options],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    log = run / "train" / "metrics.jsonl"
    _wait_for_step(process, log, 9)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert out == ""
    assert err.count("error: interrupted; finished work is kept.") == 1
    saved = sorted((run / "train" / "checkpoints").iterdir())
    assert len(saved) == 1
    assert int(saved[0].name.removeprefix("step-")) >= 9
