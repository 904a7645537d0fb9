"""Processes: one by default, N through DeepSpeed's own launcher (on CPU ranks too)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

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


def relaunch(arguments: list[str], processes: int, result: Path) -> int:
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
    return subprocess.run(command, env=environment, stdout=sys.stderr, check=False).returncode  # noqa: S603


def join_group() -> None:
    """Joins the launcher's process group, or makes a group of one."""
    import deepspeed
    import torch

    if not is_launched():
        os.environ.update(
            RANK="0",
            LOCAL_RANK="0",
            WORLD_SIZE="1",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(free_port()),
        )
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo")
