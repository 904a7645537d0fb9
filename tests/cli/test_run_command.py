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
train: {{max_steps: 3, micro_batch: 4, ttt_steps: 2, lr: 3e-3, eval_every: 3, save_every: 2,
  eval_samples: 2, dtype: fp32}}
eval:
  - {{name: exact, num_prompts: 1, max_new_tokens: 4, dtype: fp32}}
  - {{acceptor: dropmatch, p_drop: 0.1, num_prompts: 1, max_new_tokens: 4}}
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


Steps = dict[str, dict[str, Any]]


def by_name(out: str) -> Steps:
    """What became of each step, from the output of --json."""
    assert out.count("\n") == 1, out
    return {one["step"]: one for one in json.loads(out)["steps"]}


@pytest.fixture(scope="module")
def finished(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Steps]:
    """A run folder after the whole recipe, and what became of each step.

    Each step is a process that imports torch, so this is done once.
    """
    folder = tmp_path_factory.mktemp("finished")
    done = subprocess.run(
        command(recipe, "--run", folder, "--json"),
        env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, by_name(done.stdout)


@pytest.fixture
def again(vtrim: Vtrim) -> Callable[..., Steps]:
    """again(...) -> what becomes of each step; only the steps are processes of their own."""

    def call(*arguments: object) -> Steps:
        code, out, err = vtrim("run", *arguments, "--json")
        assert code == 0, err
        return by_name(out)

    return call


@pytest.mark.slow
def test_a_recipe_is_run_once_and_then_only_what_has_changed(
    recipe: Path, finished: tuple[Path, Steps], again: Callable[..., Steps], tmp_path: Path
) -> None:
    folder, first = finished
    assert list(first) == STEPS
    assert all(one["status"] == "ran" for one in first.values())
    recorded = Run(folder).read()["steps"]
    assert recorded["search"]["command"] == first["search"]["command"]
    assert recorded["train-draft"]["steps"] == 3
    assert set(recorded["eval"]["results"]) == {"exact", "dropmatch"}
    assert Run(folder).report.exists()

    typed = (recipe, "--run", shutil.copytree(folder, tmp_path / "run"))
    second = again(*typed)
    assert [one["status"] for one in second.values()] == ["unchanged"] * 6
    assert [one["seconds"] for one in second.values()] == [one["seconds"] for one in first.values()]

    typed = (*typed, "--set", "train.max_steps=2", "--set", "report.output=other.html")
    changed = again(*typed, "--only", "train-draft", "--only", "report")
    assert changed["train-draft"]["reason"] == "max_steps changed"
    assert changed["report"]["reason"].startswith("draft/")
    assert Run(tmp_path / "run").step("train-draft")["steps"] == 2
    assert (tmp_path / "run" / "other.html").exists()
    left = {name: one["status"] for name, one in again(*typed, "--plan").items()}
    assert {name for name, status in left.items() if status == "unchanged"} == set(STEPS[:3])
    for name in ("eval exact", "eval dropmatch"):
        assert left[name].startswith("draft/")
        assert left[name].endswith("changed")

    forced = again(*typed, "--only", "search", "--force")
    assert {name: one["reason"] for name, one in forced.items()} == {"search": "forced"}


@pytest.fixture(scope="module")
def counted(finished: tuple[Path, Steps], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder after the recipe's coverage and search."""
    folder = tmp_path_factory.mktemp("counted") / "run"
    shutil.copytree(finished[0], folder, ignore=shutil.ignore_patterns("train", "draft", "eval"))
    run = Run(folder)
    chain = {name: one for name, one in run.read()["chain"].items() if name in STEPS[:2]}
    run.update(chain=chain)
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
    with _training(recipe, folder, until='"step": 3,') as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130
    err = (folder / "stderr").read_text()
    assert "search: unchanged, skipped" in err
    assert err.count("error: interrupted; finished work is kept.") == 1
    assert "stopped at train-draft (exit code 130); the same command goes on from there." in err
    saved = _checkpoint(folder)
    assert saved >= 3

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
    assert (
        f"--lr 1e-4 --eval-every 3 --save-every 2 --eval-samples 2 --dtype fp32 --run {folder}\n"
        in out
    )
    assert not folder.exists()


def test_the_chain_stops_at_the_first_failure_with_its_exit_code(
    vtrim: Vtrim, recipe: Path, tmp_path: Path
) -> None:
    (tmp_path / "cut.jsonl").write_text('{"prompt": "a", "comple')
    typed = ("run", recipe, "--run", tmp_path / "run", "--set", f"data={tmp_path / 'cut.jsonl'}")
    code, out, err = vtrim(*typed)
    assert (code, out) == (2, "")
    assert "cut.jsonl:1: " in err
    assert "stopped at coverage (exit code 2); correct that, then the same command." in err
    assert "search" not in err


@pytest.mark.slow
def test_a_training_that_did_not_begin_leaves_nothing_to_throw_away(
    vtrim: Vtrim, recipe: Path, counted: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(counted, tmp_path / "run")
    Run(folder).vocab.write_bytes(b"damaged")
    code, out, err = vtrim("run", recipe, "--run", folder, "--only", "train-draft")
    assert (code, out) == (2, "")
    assert err.endswith("(exit code 2); correct that, then the same command.\n")


@pytest.mark.slow
def test_a_step_that_is_not_up_to_date_and_not_asked_for_is_named(
    vtrim: Vtrim, recipe: Path, counted: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(counted, tmp_path / "run")
    typed = ("run", recipe, "--run", folder, "--only", "search", "--set", "coverage.keep=3")
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
        ("data=none.jsonl", "data: none.jsonl: no such file"),
        ("data=folder/none.jsonl", "data: folder/none.jsonl: no such file"),
        ("target=./none", "target: ./none: no such folder"),
        ("target=/none", "target: /none: no such folder"),
        ("target=org/model", ""),
        ("train.device=tpu", "train.device: --device tpu: no such device"),
        ("eval.exact.device=tpu", "eval.0.device: --device tpu: no such device"),
        ("coverage.engine=foo", "coverage.engine: --engine foo: unknown"),
        ("coverage.encoder=foo", "coverage.encoder: --encoder foo: unknown"),
        ("coverage.map=user=a", "coverage.map: --map user=a: name the replies"),
        ("search={objective: throughput, gpu: Foo 9}", "search: --gpu Foo 9: unknown"),
        ("search.gpu=H100 SXM", "search.gpu: --gpu: --objective budget does not use it"),
        (
            "search={storage: 'nosql://x'}",
            "search: --storage nosql://x: cannot be opened",
        ),
        ("regenerate={server: foo}", "regenerate: --server foo: write it as"),
        ("regenerate={top_p: 3}", "regenerate: --top-p 3.0: must be"),
        ("regenerate={temperature: inf}", "regenerate: --temperature inf"),
        ("regenerate={device: tpu}", "regenerate: --device tpu: no such device"),
        ("regenerate={dtype: x}", "regenerate: --dtype x: unknown"),
        (
            "regenerate={server: 'http://h', batch_size: 2}",
            "regenerate: --batch-size: has no effect here",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_any_step_runs(
    vtrim: Vtrim, recipe: Path, tiny_chat: Path, tmp_path: Path, override: str, words: str
) -> None:
    typed = ["run", recipe, "--run", tmp_path / "new", "--set", override, "--plan"]
    if override.startswith("regenerate"):
        typed += ["--set", f"regenerate.prompts={tiny_chat}"]
    code, out, err = vtrim(*typed)
    if words:
        assert (code, out) == (2, "")
        assert err.startswith("error: --set ")
        assert words in err
        assert err.count("\n") == 1
    else:
        assert code == 0


@pytest.mark.slow
def test_replies_of_the_target_come_first_and_are_the_data(
    recipe: Path, again: Callable[..., Steps], tiny_chat: Path, tmp_path: Path
) -> None:
    law = f"regenerate={{prompts: {tiny_chat}, num_prompts: 12, max_new_tokens: 3}}"
    typed = [recipe, "--run", tmp_path, "--set", law, "--set", "data=[]"]
    typed += ["--only", "regenerate", "--only", "coverage"]
    first = again(*typed)
    (written,) = tmp_path.glob("replies-*.jsonl.gz")
    assert first["coverage"]["command"].startswith(f"vtrim coverage {written} ")
    counted = Run(tmp_path).step("coverage")
    # the toy has more rows than its tokenizer has tokens: such replies are refused by name
    assert counted["rows_used"] + sum(counted["rows_skipped"].values()) == 12
    # killed after the file got its name and before that was noted
    run = Run(tmp_path)
    chain = run.read()["chain"]
    del chain["regenerate"]["outputs"]
    run.update(chain=chain)
    second = again(*typed, "--set", "regenerate.batch_size=3")
    assert [one["status"] for one in second.values()] == ["unchanged"] * 2
