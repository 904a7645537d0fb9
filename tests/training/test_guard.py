"""A loss or gradient that is not finite moves nothing, is counted, and in the end stops the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from vtrim.errors import InputError
from vtrim.training.guard import poisoned, refuse_applied, refuse_more

OPTIONS = ["--max-steps", "4", "--eval-every", "100", "--save-every", "1"]
OPTIONS += ["--keep-checkpoints", "100"]


def test_a_finite_loss_is_left_as_it_is_to_the_bit() -> None:
    loss = torch.tensor(0.1, requires_grad=True)
    poisoned(loss * 3).backward()
    assert torch.equal(poisoned(loss), loss)
    assert loss.grad == 3


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_a_loss_that_is_not_finite_makes_every_gradient_nan(value: float) -> None:
    weight = torch.ones(3, requires_grad=True)
    poisoned(weight.sum() + value).backward()
    assert weight.grad is not None
    assert weight.grad.isnan().all()


def test_more_bad_steps_than_allowed_are_refused_with_step_samples_and_remedy() -> None:
    refuse_more(7, 2, 2, [3])
    with pytest.raises(InputError, match=r"step 7.*samples 3, 5.*--max-bad-steps 2.*--lr"):
        refuse_more(7, 3, 2, [3, 5])


@pytest.mark.parametrize(("loss", "norm"), [(torch.nan, 1.0), (2.0, torch.inf)])
def test_a_step_that_is_not_finite_and_was_taken_ends_the_run(loss: float, norm: float) -> None:
    refuse_applied(7, 2.0, 1.0)
    with pytest.raises(InputError, match=r"step 7.*not skipped.*checkpoint is whole.*--restart"):
        refuse_applied(7, loss, norm)


def state(folder: Path, step: int) -> list[Any]:
    """All tensors of a checkpoint, in order."""
    found: list[Any] = []

    def walk(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, dict):
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list | tuple):
            for inner in value:
                walk(inner)

    for path in sorted((folder / "checkpoints" / f"step-{step:08d}").rglob("*.pt")):
        saved = torch.load(path, weights_only=False)
        walk(saved.get("module"))
        walk(saved.get("optimizer"))
        walk(saved.get("optimizer_state_dict"))
    assert found
    return found


def same(left: list[Any], right: list[Any]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "how", "what"),
    [
        (2, "--dtype fp32 --zero-stage 0", "loss"),
        (2, "--dtype fp32 --zero-stage 2", "gradient"),
        (2, "--dtype bf16 --zero-stage 1", "loss"),
        (2, "--dtype bf16 --zero-stage 3", "gradient"),
        (1, "--dtype fp32 --zero-stage 0 --clip 0", "gradient"),
        (1, "--dtype fp32 --zero-stage 1", "gradient"),
        (1, "--dtype fp32 --zero-stage 3", "loss"),
        (1, "--dtype bf16 --zero-stage 0", "loss"),
        (1, "--dtype bf16 --zero-stage 0", "gradient"),
        (1, "--dtype bf16 --zero-stage 2", "loss"),
        (1, "--dtype bf16 --zero-stage 1 --optimizer muon", "gradient"),
        (1, "--dtype fp32 --zero-stage 0 --optimizer muon", "loss"),
    ],
)
def test_a_bad_step_of_one_process_changes_no_weight_and_no_moment_in_any(
    training: Callable[..., Any], processes: int, how: str, what: str
) -> None:
    run = training()
    fault = {"step": 2, "rank": processes - 1, "what": what}
    options = [*OPTIONS, *how.split(), "--grad-accum", 2]
    assert "UserWarning" not in run.train(*options, processes=processes, fault=fault)
    before, bad, after = (state(run.folder, step) for step in (2, 3, 4))
    assert same(before, bad)
    assert not same(bad, after)
    assert [e["step"] for e in run.entries("train")] == [1, 2, 4]
    skipped = run.entries("skipped")
    assert [e["step"] for e in skipped] == [3]
    assert run.result()["bad_steps"] == 1
    # a loss names its micro-batch of 4 samples; a gradient could be any of the step's
    assert len(skipped[0]["samples"]) == (4 if what == "loss" else 4 * 2 * processes)


@pytest.mark.slow
def test_a_run_stops_at_the_first_bad_step_when_none_is_allowed(
    training: Callable[..., Any],
) -> None:
    run = training()
    fault = {"step": 2, "rank": 0, "what": "loss"}
    options = [*OPTIONS, "--max-bad-steps", "0", "--dtype", "fp32", "--zero-stage", "0"]
    said = run.train(*options, code=2, fault=fault)
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert "step 3" in errors[0]
    assert "--max-bad-steps" in errors[0]
    assert run.checkpoints()[-1] == "step-00000002"
    # a larger limit is no other run: it goes on
    run.train(*options[:-6], "--max-bad-steps", "5", *options[-4:], fault=fault)
    assert run.result()["bad_steps"] == 1


@pytest.mark.slow
def test_all_processes_stop_where_a_step_that_is_not_finite_was_let_through(
    training: Callable[..., Any],
) -> None:
    run = training()
    fault = {"step": 2, "rank": None, "what": "unguarded"}
    said = run.train(*OPTIONS, "--dtype", "fp32", "--zero-stage", "0", processes=2, code=2,
                     fault=fault)  # fmt: skip
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert "step 3" in errors[0]
    assert run.checkpoints()[-1] == "step-00000002"
