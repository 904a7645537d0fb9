"""``vtrim run`` as a user runs it: real commands in processes of their own, on a tiny model."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from vtrim.artifacts import Run

RECIPE = """name: tiny
target: {target}
data: {chat}
search: {{objective: budget, cmin: 0.8}}
train: {{max_steps: 12, micro_batch: 4, ttt_steps: 3, lr: 3e-3, eval_every: 6, save_every: 4,
  dtype: fp32}}
eval:
  - {{name: exact, num_prompts: 2, max_new_tokens: 8, dtype: fp32}}
  - {{acceptor: dropmatch, p_drop: 0.1, num_prompts: 2, max_new_tokens: 8}}
"""
STEPS = ["coverage", "search", "train-draft", "eval exact", "eval dropmatch", "report"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}

Vtrim = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def recipe(tiny_target: Path, tiny_chat: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe of six steps."""
    path = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
    path.write_text(RECIPE.format(target=tiny_target, chat=tiny_chat))
    return path


def command(*arguments: object) -> list[str]:
    """The command line of ``vtrim run``."""
    return [sys.executable, "-m", "vtrim", "run", *map(str, arguments)]


def run(*arguments: object) -> dict[str, Any]:
    """Runs a recipe with --json; what became of each step."""
    done = subprocess.run(
        command(*arguments, "--json"),
        env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1, done.stdout
    return {one["step"]: one for one in json.loads(done.stdout)["steps"]}


@pytest.mark.slow
def test_a_recipe_is_run_once_and_then_only_what_has_changed(recipe: Path, tmp_path: Path) -> None:
    first = run(recipe, "--run", tmp_path)
    assert list(first) == STEPS
    assert all(one["status"] == "ran" for one in first.values())
    recorded = Run(tmp_path).read()["steps"]
    assert recorded["search"]["command"] == first["search"]["command"]
    assert recorded["train-draft"]["steps"] == 12
    assert set(recorded["eval"]["results"]) == {"exact", "dropmatch"}
    assert Run(tmp_path).report.exists()

    again = run(recipe, "--run", tmp_path)
    assert [one["status"] for one in again.values()] == ["unchanged"] * 6
    assert [one["seconds"] for one in again.values()] == [one["seconds"] for one in first.values()]

    changed = run(recipe, "--run", tmp_path, "--set", "train.max_steps=6")
    assert [name for name, one in changed.items() if one["status"] == "ran"] == STEPS[2:]
    assert changed["train-draft"]["reason"] == "max_steps changed"
    assert changed["report"]["reason"].endswith("changed")
    assert Run(tmp_path).step("train-draft")["steps"] == 6

    forced = run(recipe, "--run", tmp_path, "--only", "search", "--force")
    assert {name: one["reason"] for name, one in forced.items()} == {"search": "forced"}


@pytest.fixture(scope="module")
def counted(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder after the recipe's coverage and search."""
    folder = tmp_path_factory.mktemp("counted")
    run(recipe, "--run", folder, "--only", "coverage", "--only", "search")
    return folder


def _children(process: int) -> list[int]:
    path = Path(f"/proc/{process}/task/{process}/children")
    return [int(word) for word in path.read_text().split()]


def _gone(process: int) -> bool:
    deadline = time.monotonic() + 120
    while Path(f"/proc/{process}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not Path(f"/proc/{process}").exists()


@contextmanager
def _training(recipe: Path, folder: Path, until: str) -> Iterator[subprocess.Popen[bytes]]:
    """A long training through ``vtrim run``, once its log of stderr or metrics holds ``until``."""
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            command(recipe, "--run", folder, "--set", "train.max_steps=100000"),
            env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=errors,
        )  # fmt: skip
    logs, deadline = (folder / "stderr", folder / "train/metrics.jsonl"), time.monotonic() + 300
    steps: list[int] = []
    try:
        while not any(log.exists() and until in log.read_text() for log in logs):
            assert process.poll() is None, (folder / "stderr").read_text()
            assert time.monotonic() < deadline, "training did not get that far"
            time.sleep(0.05)
        steps = _children(process.pid)
        yield process
    finally:
        process.kill()
        process.wait()
        for step in steps:
            with suppress(ProcessLookupError):
                os.kill(step, signal.SIGKILL)


def _checkpoint(folder: Path) -> int:
    """The newest checkpoint's step."""
    return max(int(p.name.rpartition("-")[2]) for p in (folder / "train/checkpoints").iterdir())


@pytest.mark.slow
def test_ctrl_c_reaches_the_step_once_and_the_same_line_goes_on(
    recipe: Path, counted: Path, tmp_path: Path, vtrim: Vtrim
) -> None:
    folder = shutil.copytree(counted, tmp_path / "run")
    with _training(recipe, folder, until='"step": 9,') as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130
    err = (folder / "stderr").read_text()
    assert "search: unchanged, skipped" in err
    assert err.count("error: interrupted; finished work is kept.") == 1
    assert "stopped at train-draft (exit code 130)" in err
    saved = _checkpoint(folder)
    assert saved >= 9

    typed = ("run", recipe, "--run", folder, "--set", "train.max_steps=100000")
    code, _, err = vtrim(*typed, "--set", "train.lr=1e-3")
    assert code == 2
    assert "train-draft: lr changed" in err
    assert "error: --lr differs: 0.001 now, 0.003" in err
    assert "--only train-draft --force" in err
    assert _checkpoint(folder) == saved

    with _training(recipe, folder, until=f"resumed at step {saved:,}"):
        assert "train-draft: lr changed" in (folder / "stderr").read_text()


@pytest.mark.slow
def test_a_step_that_outlives_a_killed_run_keeps_the_next_one_out(
    recipe: Path, counted: Path, tmp_path: Path, vtrim: Vtrim
) -> None:
    folder = shutil.copytree(counted, tmp_path / "run")
    with _training(recipe, folder, until='"step": 3,') as process:
        (step,) = _children(process.pid)
        process.kill()
        process.wait()
        code, out, err = vtrim("run", recipe, "--run", folder)
        assert (code, out) == (2, "")
        assert "another `vtrim run` is at work here" in err
        os.kill(step, signal.SIGINT)
        assert _gone(step)
        code, _, err = vtrim("run", recipe, "--run", folder, "--only", "search")
        assert code == 0
        assert "search: unchanged, skipped" in err


def test_a_plan_prints_the_commands_and_runs_none(
    vtrim: Vtrim, recipe: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "new"
    code, out, err = vtrim("run", recipe, "--run", folder, "--dry-run", "--set", "train.lr=1e-4")
    assert (code, err) == (0, "")
    assert "# train-draft: not run here yet\n" in out
    assert f"--lr 1e-4 --eval-every 6 --save-every 4 --dtype fp32 --run {folder}\n" in out
    assert not folder.exists()


def test_the_chain_stops_at_the_first_failure_with_its_exit_code(
    vtrim: Vtrim, recipe: Path, tmp_path: Path
) -> None:
    code, out, err = vtrim("run", recipe, "--run", tmp_path, "--set", "data=none.jsonl")
    assert (code, out) == (2, "")
    assert "none.jsonl: no such file" in err
    assert "search" not in err


def test_a_step_that_is_not_up_to_date_and_not_asked_for_is_named(
    vtrim: Vtrim, recipe: Path, tmp_path: Path
) -> None:
    assert vtrim("run", recipe, "--run", tmp_path, "--only", "coverage", "--only", "search")[0] == 0
    typed = ("run", recipe, "--run", tmp_path, "--only", "search", "--set", "coverage.keep=3")
    code, _, err = vtrim(*typed)
    assert code == 0
    assert "warning: coverage is not up to date (keep changed) and is left as it is." in err
    assert "search: unchanged, skipped" in err


def test_a_run_folder_in_use_is_refused(vtrim: Vtrim, recipe: Path, tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        code, out, err = vtrim("run", recipe, "--run", tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {tmp_path}: another `vtrim run`")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.lr=0", "--set train.lr=0: train.lr: --lr 0"),
        ("train.ttt_steps=10", "train.ttt_steps: --ttt-steps 10"),
        ("search.cmin=60", "search.cmin: --cmin 60"),
        ("search.kmin=9999999", ""),
        ("eval.exact.heads=3", "eval.0.heads: --heads: only with --acceptor dropmatch"),
        ("eval.dropmatch.p_drop=2", "p_drop"),
        ("train.mix={code: -1}", "mix"),
        ("trian.lr=1", "trian: unknown key"),
    ],
)
def test_what_cannot_work_is_refused_before_any_step_runs(
    vtrim: Vtrim, recipe: Path, tmp_path: Path, override: str, words: str
) -> None:
    code, out, err = vtrim("run", recipe, "--run", tmp_path / "new", "--set", override, "--plan")
    if words:
        assert (code, out) == (2, "")
        assert err.startswith("error: --set ")
        assert words in err
        assert err.count("\n") == 1
    else:
        assert code == 0


@pytest.mark.slow
def test_replies_of_the_target_come_first_and_are_the_data(
    recipe: Path, tiny_chat: Path, tmp_path: Path
) -> None:
    law = f"regenerate={{prompts: {tiny_chat}, num_prompts: 12, max_new_tokens: 6}}"
    typed = [recipe, "--run", tmp_path, "--set", law, "--set", "data=[]"]
    first = run(*typed, "--only", "regenerate", "--only", "coverage")
    (written,) = tmp_path.glob("replies-*.jsonl.gz")
    assert first["coverage"]["command"].startswith(f"vtrim coverage {written} ")
    counted = Run(tmp_path).step("coverage")
    # the toy has more rows than its tokenizer has tokens: such replies are refused by name
    assert counted["rows_used"] + sum(counted["rows_skipped"].values()) == 12
    again = run(*typed, "--set", "regenerate.batch_size=3", "--only", "coverage")
    assert again["coverage"]["status"] == "unchanged"
