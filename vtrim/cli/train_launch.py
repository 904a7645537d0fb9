"""Several processes for ``vtrim train-draft``: starts them and hands on the first one's result."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path
from typing import Any

import typer

from vtrim.artifacts import read_json, typed_command
from vtrim.cli import common
from vtrim.cli.train_call import TrainCall
from vtrim.cli.train_request import check
from vtrim.errors import OptionError, VtrimError
from vtrim.training.hostfile import read_hostfile
from vtrim.training.launch import Launch, check_processes, is_launched, relaunch

RESULT = "result.json"


def plan_launch(
    num_gpus: int | None, hostfile: Path | None, address: str | None, port: int | None
) -> Launch:
    """How many processes, where. Inside a launched process: the group it is in.

    Raises:
        VtrimError: the hostfile or the number of processes cannot be.
    """
    if is_launched():
        _check_launched(hostfile, address, port)
        started = int(os.environ["WORLD_SIZE"])
        if hostfile is None and num_gpus not in (None, started):
            raise OptionError(
                f"--num-gpus {num_gpus}, but the launcher started {started} processes; leave "
                "--num-gpus out."
            )
        return Launch(processes=started)
    hosts = None if hostfile is None else read_hostfile(hostfile, num_gpus)
    processes = hosts.processes if hosts else (num_gpus or 1)
    launch = Launch(processes=processes, hosts=hosts, address=address, port=port)
    launch.check()
    return launch


def _check_launched(hostfile: Path | None, address: str | None, port: int | None) -> None:
    """Refuses what decides how processes are started where torchrun has already started them.

    Processes that vtrim started have these options too, on machines that know nothing of it.
    """
    for option, value in (
        ("--hostfile", hostfile),
        ("--master-addr", address),
        ("--master-port", port),
    ):
        if value is not None and "TORCHELASTIC_RUN_ID" in os.environ:
            raise OptionError(f"{option}: torchrun has started the processes; give it to torchrun.")


def train_through_launcher(call: TrainCall, launch: Launch) -> dict[str, Any]:
    """Starts the processes with the same command line and returns the first one's result."""
    from vtrim.models.hub import resolve_model
    from vtrim.training.restart import training_lock
    from vtrim.training.watch import forget, told

    launch.check_programs()
    check(call, launch.processes)
    device = train_device(call.device)
    check_processes(device, launch)
    resolve_model(call.target_name)  # unpack the built-in target once, not in every rank
    result = call.run.train / RESULT
    with training_lock(call.run.root):  # the first process takes it next
        forget(call.run.train)
        result.unlink(missing_ok=True)
    code = relaunch(launch, shlex.split(typed_command()["command"])[1:], device)
    if code == 0 and result.exists():
        value: dict[str, Any] = read_json(result)
        return value
    if code not in (1, 2, 130) and not told(call.run.train):
        raise VtrimError(f"a process {_by(code)} before the group was complete; all were stopped.")
    raise typer.Exit(code if code in (2, 130) else 1)


def _by(code: int) -> str:
    number = abs(code) if code < 0 else 256 - code
    known = {int(s): s.name for s in signal.Signals}
    return f"was killed by {known[number]}" if number in known else f"ended with exit code {code}"


def train_device(asked: str | None) -> str:
    """The device asked for, else CUDA where there is one; each process tries its own later."""
    import torch

    if asked is not None:
        return common.pick_device(asked)
    return "cuda" if torch.cuda.is_available() else "cpu"
