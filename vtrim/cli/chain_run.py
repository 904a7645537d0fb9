"""Runs the steps of a chain, each as a user would, in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NoReturn

from vtrim.artifacts import Run, lock_file
from vtrim.cli import common
from vtrim.cli.chain import Step
from vtrim.cli.chain_state import (
    CHANGED,
    NEW,
    entry_of,
    is_written,
    made_from,
    note_begun,
    note_done,
    why,
)
from vtrim.config import python_command
from vtrim.errors import InputError, OptionError

_REFUSED = 2  # the exit code of bad input
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def pick_steps(steps: Sequence[Step], only: Sequence[str]) -> list[Step]:
    """The steps that ``--only`` names; all of them where it names none.

    Raises:
        OptionError: it names one that the recipe has not.
    """
    chosen: set[str] = set()
    for word in only:
        named = [s.name for s in steps if word in (s.name, s.command, s.section)]
        if not named:
            raise OptionError(
                f"--only {word}: no such step here. Steps: {', '.join(s.name for s in steps)}."
            )
        chosen.update(named)
    return [step for step in steps if not only or step.name in chosen]


def plan_chain(
    steps: Sequence[Step], chosen: Sequence[Step], run: Run, *, force: bool
) -> list[dict[str, Any]]:
    """What ``run_chain`` would do, as far as it can be told before the steps have run."""
    planned, earlier = [], ""
    for step in chosen:
        reason = _reason(step, run, after=earlier) or ("forced" if force else "")
        status = f"unchanged, if {earlier} makes the same again" if earlier else "unchanged"
        line = _prepared(step, run, reason, force=force).line
        planned.append({"step": step.name, "status": reason or status, "command": line})
        earlier = earlier or (step.name if reason else "")
    _note_stale(steps, chosen, run)
    return planned


def _reason(step: Step, run: Run, *, after: str) -> str:
    """Why a step would run; what it reads may be yet to be made by a step before it."""
    if is_written(step, run):
        return ""
    if not entry_of(step, run):
        return NEW
    try:
        return why(step, run, made_from(step, run))
    except InputError as error:
        return f"after {after}" if after else str(error)


def run_chain(
    steps: Sequence[Step],
    chosen: Sequence[Step],
    run: Run,
    *,
    force: bool = False,
    results_on_stderr: bool = False,
) -> list[dict[str, Any]]:
    """Runs the chosen steps that are not up to date; what became of each.

    Raises:
        SystemExit: a step failed; with its exit code. 130 after a signal, which it got too.
    """
    done = []
    with _locked(run) as lock:
        _note_stale(steps, chosen, run)
        for step in chosen:
            made = made_from(step, run)
            if not force and is_written(step, run):
                note_begun(step, run, made)
                note_done(step, run, 0.0)
            reason = why(step, run, made) or ("forced" if force else "")
            if reason:
                prepared = _prepared(step, run, reason, force=force)
                common.note(f"\n{step.name}: {reason}\n$ {prepared.line}")
                if force and step.command == "regenerate":
                    Path(step.options["output"]).unlink(missing_ok=True)
                note_begun(step, run, made)
                begun = time.monotonic()
                code = _run(prepared, lock, results_on_stderr)
                if code != 0:
                    _stop(prepared, code, run)
                note_done(step, run, time.monotonic() - begun)
            else:
                common.note(f"{step.name}: unchanged, skipped")
            entry = {"step": step.name, "command": step.line, "reason": reason}
            entry |= {"status": "ran" if reason else "unchanged"}
            done.append({**entry, "seconds": entry_of(step, run).get("seconds")})
    return done


def _prepared(step: Step, run: Run, reason: str, *, force: bool) -> Step:
    """The step as it is run: training that was finished with other settings begins anew.

    One that was not finished does not: train-draft goes on with it or says what differs.
    """
    if step.command != "train-draft" or not run.train.exists():
        return step
    finished = bool(entry_of(step, run).get("outputs"))
    if force or (finished and reason.endswith(CHANGED)):
        return replace(step, arguments=(*step.arguments, "--restart"))
    return step


def _stop(step: Step, code: int, run: Run) -> NoReturn:
    """Says where the chain stopped and what to do, and ends with the step's exit code."""
    refused = code == _REFUSED
    then = (
        "correct that, then the same command" if refused else "the same command goes on from there"
    )
    common.note(f"stopped at {step.name} (exit code {code}); {then}.")
    begun = step.command == "train-draft" and any(run.train.glob("checkpoints/*"))
    if refused and begun and "--restart" not in step.arguments:
        common.note("To throw an unfinished training away: --only train-draft --force.")
    sys.exit(code)


def _note_stale(steps: Sequence[Step], chosen: Sequence[Step], run: Run) -> None:
    """Says which steps that are not to run would have to, before those that are."""
    names = [step.name for step in chosen]
    for step in steps[: max((steps.index(one) for one in chosen), default=0)]:
        if step.name in names or not entry_of(step, run):
            continue
        reason = _reason(step, run, after="")
        if reason:
            common.warn(f"{step.name} is not up to date ({reason}) and is left as it is.")


def _run(step: Step, lock: IO[str], results_on_stderr: bool) -> int:
    """The exit code of a step; 130 after a signal, which is passed on to it, once.

    The step has a process group of its own: on Ctrl-C a terminal signals every process of the
    foreground group, and the step would hear it twice. It also holds the lock, so that a step
    which outlives a killed `vtrim run` keeps the next one out.
    """
    received: list[int] = []
    process: subprocess.Popen[bytes] | None = None

    def forward(number: int, _frame: object) -> None:
        received.append(number)
        if process is not None:
            process.send_signal(number)

    previous = {s: signal.signal(s, forward) for s in _PASSED_ON}
    try:
        process = subprocess.Popen(  # noqa: S603
            [*python_command(), *common.verbosity(), *step.arguments],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr if results_on_stderr else None,
            pass_fds=(lock.fileno(),),
            process_group=0,
        )
        code = process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 130 if received else code if code >= 0 else 128 - code


@contextmanager
def _locked(run: Run) -> Iterator[IO[str]]:
    """Holds the run folder until the block ends.

    Raises:
        InputError: another chain, or a step of one that was killed, is still at work in it.
    """
    run.root.mkdir(parents=True, exist_ok=True)
    with (run.root / ".lock").open("w") as file:
        taken = InputError(
            f"{run.root}: another `vtrim run` is at work here. Wait for it, stop it, or name "
            "another run folder with --run."
        )
        lock_file(file, taken)
        yield file
