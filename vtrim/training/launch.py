"""Processes: one by default, N through DeepSpeed's own launcher (on CPU ranks too)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from vtrim.errors import OptionError

RESULT_ENV = "VTRIM_TRAIN_RESULT"


def is_launched() -> bool:
    """Whether a launcher (deepspeed, torchrun) already started this process as one of a group."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def free_port() -> int:
    """A TCP port that nothing listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def relaunch(arguments: list[str], processes: int, device: str, result: Path) -> int:
    """Runs ``vtrim`` with the same arguments under ``deepspeed --num_gpus``; its exit code.

    The launcher's own output goes to stderr; the first process leaves its result in ``result``.
    """
    command = [
        sys.executable,
        "-m",
        "deepspeed.launcher.runner",
        "--num_gpus",
        str(processes),
        "--master_port",
        str(free_port()),
        "--log_level",
        "error",
        "--module",
        "vtrim",
        *arguments,
    ]
    environment = {"OMP_NUM_THREADS": "1", **os.environ, RESULT_ENV: str(result)}
    if device == "cpu":
        environment["DS_ACCELERATOR"] = "cpu"
    return _wait(subprocess.Popen(command, env=environment, stdout=sys.stderr))  # noqa: S603


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Passes signals on and waits, so that the processes can save; 130 after a signal."""
    received: list[int] = []

    def forward(number: int, _frame: object) -> None:
        received.append(number)
        process.send_signal(number)

    previous = {s: signal.signal(s, forward) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 130 if received else code


def join_group(device: str) -> str:
    """Joins the launcher's process group, or makes a group of one; this process's device.

    Raises:
        OptionError: one GPU was named for several processes.
    """
    kind, _, index = device.partition(":")
    if is_launched() and index:
        raise OptionError(f"--device {device}: with several processes each takes its own GPU.")
    if not is_launched():
        os.environ.update(
            RANK="0",
            LOCAL_RANK=index or "0",
            WORLD_SIZE="1",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(free_port()),
        )
    if kind == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"  # also where there is a GPU that was not asked for
    import deepspeed
    import deepspeed.ops
    import torch

    # DeepSpeed would compile a shared-memory operator that only inference uses: half a minute, a
    # C++ compiler, and a lock that a killed process leaves behind for all later ones to wait on
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if kind == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    deepspeed.init_distributed("nccl" if kind == "cuda" else "gloo")
    return device


def check_processes(device: str, processes: int) -> None:
    """Refuses more processes than there are GPUs.

    Raises:
        OptionError: names both numbers.
    """
    import torch

    if device.startswith("cuda") and processes > torch.cuda.device_count():
        raise OptionError(
            f"--num-gpus {processes}: this machine has {torch.cuda.device_count()}. "
            "Give fewer, or --device cpu for CPU ranks."
        )
