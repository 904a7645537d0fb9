"""A run goes on exactly where it stood, whatever stopped it, or says why it cannot."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vtrim.errors import InputError, MismatchError
from vtrim.training.folder import prepare_folder
from vtrim.training.settings import TrainSettings

OPTIONS = ["--max-steps", "12", "--eval-every", "4", "--save-every", "3", "--dtype", "fp32"]
WEIGHTS = "draft/model.safetensors"


def prepare(folder: Path, processes: int = 1, restart: bool = False, **changed: Any) -> None:
    settings = TrainSettings(**changed)
    identity = {"vocab_fingerprint": "sha256:1", "aux_layers": [1, 2, 4]}
    prepare_folder(folder, settings, identity, processes=processes, restart=restart)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A run's folder with a checkpoint in it, 2 processes and 2 accumulation steps."""
    prepare(tmp_path / "train", processes=2, grad_accum=2, max_steps=50)
    (tmp_path / "train" / "checkpoints" / "step-00000003").mkdir(parents=True)
    return tmp_path / "train"


@pytest.mark.parametrize(
    ("processes", "changed", "words"),
    [
        (2, {"learning_rate": 3e-4}, "--lr differs: 0.0003 now, 0.0001"),
        (2, {"head_init": "random"}, "--head differs: random now, target"),
        (2, {"seed": 1}, "--seed differs: 1 now, 42"),
        (2, {"max_steps": 99}, "--max-steps differs: 99 now, 50.*--init-from"),
        (2, {"max_steps": 50, "max_minutes": 5}, "--max-minutes differs: 5 now, None"),
        (
            2,
            {"grad_accum": 1},
            "--num-gpus 2 x --grad-accum 1 makes 2 .*has 4. Give --grad-accum 2",
        ),
        (
            1,
            {"grad_accum": 2},
            "--num-gpus 1 x --grad-accum 2 makes 2 .*has 4. Give --grad-accum 4",
        ),
        (3, {"grad_accum": 1}, "makes 3 .*has 4. Give --num-gpus 4 --grad-accum 1"),
    ],
)
def test_a_changed_setting_is_refused_by_the_name_that_was_typed(
    begun: Path, processes: int, changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(MismatchError, match=words):
        prepare(begun, processes, **{"grad_accum": 2, "max_steps": 50, **changed})


def test_another_vocabulary_is_refused_by_what_chooses_it(begun: Path) -> None:
    settings = TrainSettings(grad_accum=2, max_steps=50)
    identity = {"vocab_fingerprint": "sha256:2", "aux_layers": [1, 2, 4]}
    with pytest.raises(MismatchError, match=r"--vocab.*sha256:2 now, sha256:1"):
        prepare_folder(begun, settings, identity, processes=2, restart=False)


@pytest.mark.parametrize(("processes", "grad_accum"), [(1, 4), (4, 1), (2, 2)])
def test_the_same_number_of_micro_batches_a_step_is_the_same_run(
    begun: Path, processes: int, grad_accum: int
) -> None:
    prepare(begun, processes, grad_accum=grad_accum, max_steps=50, keep_checkpoints=7)
    prepare(begun, 4, grad_accum=1, max_steps=50)  # and it is the one noted from then on


def test_other_target_weights_are_refused_by_the_targets_name(begun: Path) -> None:
    settings = TrainSettings(grad_accum=2, max_steps=50)
    told = {"vocab_fingerprint": "sha256:1", "aux_layers": [1, 2, 4], "target": "org/m"}
    prepare_folder(begun, settings, {**told, "target_weights": "sha256:1"}, processes=2,
                   restart=True)  # fmt: skip
    (begun / "checkpoints" / "step-00000003").mkdir(parents=True)
    with pytest.raises(MismatchError, match=r"weights of org/m\) differs: sha256:2 now, sha256:1"):
        prepare_folder(begun, settings, {**told, "target_weights": "sha256:2"}, processes=2,
                       restart=False)  # fmt: skip


def test_checkpoints_without_their_settings_are_not_taken_for_another_run(begun: Path) -> None:
    (begun / "settings.json").unlink()
    with pytest.raises(InputError, match=r"missing beside checkpoints; --restart"):
        prepare(begun)
    prepare(begun, restart=True)
    assert [p.name for p in begun.iterdir()] == ["settings.json"]


def at_step(run: Any, step: int) -> None:
    """Returns when the log names the step."""
    log, deadline = run.folder / "metrics.jsonl", time.monotonic() + 240
    while not (log.exists() and f'"step": {step},' in log.read_text()):
        assert time.monotonic() < deadline, run.log.read_text()
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_saves_the_step_and_the_resumed_run_ends_as_the_whole_one(
    training: Callable[..., Any], number: signal.Signals
) -> None:
    whole, stopped = training("whole"), training("stopped")
    options = [*OPTIONS[:-4], "--save-every", "1000", "--dtype", "fp32", "--decode-eval", "2"]
    whole.train(*options)
    children = stopped.start(*options)
    at_step(stopped, 3)
    os.kill(children[0], number)
    os.kill(children[0], number)  # the second changes nothing
    assert stopped.forks.wait(children) == [130]
    assert len(stopped.checkpoints()) == 1
    said = stopped.train(*options)
    assert "resumed at step" in said
    assert stopped.entries() == whole.entries()
    assert (stopped.run / WEIGHTS).read_bytes() == (whole.run / WEIGHTS).read_bytes()
    assert "already finished at step 12" in stopped.train(*options)
    assert stopped.entries() == whole.entries()


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        "--zero-stage 0 --dtype fp32",
        "--zero-stage 2 --dtype bf16",
        "--zero-stage 1 --dtype bf16 --optimizer muon",
    ],
)
def test_a_cut_checkpoint_is_told_and_the_run_before_it_ends_as_the_whole_one(
    training: Callable[..., Any], how: str
) -> None:
    run = training()
    options = [*OPTIONS[:-2], *how.split()]
    run.train(*options)
    whole, weights = run.entries(), (run.run / WEIGHTS).read_bytes()
    assert run.checkpoints() == ["step-00000009", "step-00000012"]
    states = next((run.folder / "checkpoints" / "step-00000012").rglob("*model_states.pt"))
    os.truncate(states, 1000)
    said = run.train(*options)
    assert "not whole, so the checkpoint before it is used" in said
    assert "step-00000012" in said
    assert "resumed at step 9" in said
    assert run.entries() == whole
    assert (run.run / WEIGHTS).read_bytes() == weights


@pytest.mark.slow
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_another_number_of_processes_goes_on_with_the_same_losses(
    training: Callable[..., Any], stage: int, before: int, after: int
) -> None:
    whole, moved = training("whole"), training("moved")
    options = [*OPTIONS, "--zero-stage", stage]
    whole.train(*options, "--grad-accum", 2)
    children = moved.start(*options, "--grad-accum", 2 // before, processes=before)
    at_step(moved, 5)
    for child in children:
        os.kill(child, signal.SIGKILL)
    moved.forks.wait(children)
    moved.train(*options, "--grad-accum", 2 // after, processes=after)
    for there, here in zip(whole.entries(), moved.entries(), strict=True):
        assert here["loss"] == pytest.approx(there["loss"], rel=1e-5), here
    assert not (moved.folder / "checkpoints" / ".universal").exists()


@pytest.mark.slow
def test_another_number_of_processes_cannot_take_over_muons_momentum(
    training: Callable[..., Any],
) -> None:
    run = training()
    options = [*OPTIONS[2:-2], "--max-steps", 3, "--dtype", "bf16", "--optimizer", "muon"]
    run.train(*options, "--grad-accum", 2)
    said = run.train(*options, processes=2, code=2)
    assert "saved by 1 processes, 2 now" in said
    assert "--num-gpus 1" in said


@pytest.mark.slow
def test_a_run_ends_early_with_its_best_weights_when_no_draft_is_better(
    training: Callable[..., Any],
) -> None:
    run = training()
    # weights that do not move are never better than at the first check
    still = ["--max-steps", "40", "--eval-every", "2", "--early-stop", "2", "--lr", "1e-12"]
    said = run.train(*still, "--dtype", "fp32")
    assert run.result()["stopped_early"] is True
    assert run.result()["steps"] == 6
    assert run.result()["best_step"] == 6  # of equal ones the last
    assert (run.run / WEIGHTS).exists()
    assert "early" in said
    assert "already finished" in run.train(*still, "--dtype", "fp32")


@pytest.mark.slow
def test_a_checkpoint_is_also_due_by_the_clock(training: Callable[..., Any]) -> None:
    run = training()
    run.train("--max-steps", 4, "--save-every", 1000, "--save-minutes", 0.01)
    assert run.checkpoints()[-1] == "step-00000004"
    listing = (run.folder / "checkpoints" / run.checkpoints()[-1] / "vtrim.json").read_text()
    assert '"processes": 1' in listing


@pytest.mark.slow
def test_a_run_does_not_go_on_with_other_weights_of_the_target(
    training: Callable[..., Any], tiny_target: Path
) -> None:
    run = training()
    weights = tiny_target / "model.safetensors"
    run.train(*OPTIONS)
    whole = weights.read_bytes()
    try:
        weights.write_bytes(whole[:-2] + bytes(b ^ 1 for b in whole[-2:]))
        said = run.train(*OPTIONS, code=2)
    finally:
        weights.write_bytes(whole)
    assert "error: --target (the weights of" in said
    assert tiny_target.name in said


def said_in(run: Any, word: str) -> None:
    """Returns when the run has said the word."""
    deadline = time.monotonic() + 240
    while not (run.log.exists() and word in run.log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_signal_during_a_check_saves_right_after_it(
    training: Callable[..., Any], processes: int
) -> None:
    run = training()
    options = [*OPTIONS[:4], "--save-every", 1000, "--dtype", "fp32"]
    fault = {"step": 4, "rank": 0, "what": "long check"}
    children = run.start(*options, processes=processes, fault=fault)
    said_in(run, "checking")
    os.kill(children[0], signal.SIGTERM)  # the others must be told
    assert run.forks.wait(children) == [130] * processes
    assert run.checkpoints() == ["step-00000004"]
    assert [e["step"] for e in run.entries("train")] == [1, 2, 3, 4]
    assert [e["step"] for e in run.entries("heldout")] == [4]


@pytest.mark.slow
def test_a_signal_while_loading_ends_the_run_with_130_and_no_traceback(
    training: Callable[..., Any],
) -> None:
    run = training()
    children = run.start(*OPTIONS, fault={"step": 0, "rank": 0, "what": "long load"})
    said_in(run, "loading")
    os.kill(children[0], signal.SIGTERM)
    assert run.forks.wait(children, 50) == [130]
    assert "Traceback" not in run.log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("spoil", ["gone", "cut"])
def test_best_weights_that_were_lost_are_told_and_chosen_anew(
    training: Callable[..., Any], spoil: str
) -> None:
    run = training()
    run.train(*OPTIONS)
    best = next((run.folder / "best").iterdir())
    if spoil == "gone":
        best.unlink()
    else:
        os.truncate(best, 100)
    said = run.train(*OPTIONS)  # it had ended: nothing but its last weights is left
    assert "best draft so far is lost" in said
    assert best.name in said
    assert run.result()["best_step"] == 12
    assert [e["step"] for e in run.entries("heldout")] == [4, 8, 12]
    assert "is lost" not in run.train(*OPTIONS)
