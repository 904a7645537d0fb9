"""Processes: one by default, N through DeepSpeed's own launcher (on CPU ranks too)."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from vtrim.errors import OptionError
from vtrim.training.hostfile import Hosts, is_this_machine

LAUNCHED_ENV = "VTRIM_LAUNCHED"
"""Set in the processes that ``vtrim`` launched, to its process id: it prints their result."""
_RANK = "--local_rank="  # an argument of every training process
_PORT = 29500


def is_launched() -> bool:
    """Whether a launcher (deepspeed, torchrun) already started this process as one of a group."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def free_port() -> int:
    """A TCP port that nothing listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How to start the processes. hosts: the machines, None for this one alone.

    address, port: where the processes find the first one; None: the first machine, and a free
    port, or 29500 where other machines must know it too.
    """

    processes: int
    hosts: Hosts | None = None
    address: str | None = None
    port: int | None = None

    @property
    def here(self) -> bool:
        """Whether all processes run on this machine."""
        return self.hosts is None or self.hosts.only_here

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The command line that runs ``vtrim ARGUMENTS`` in every process."""
        port = self.port or (free_port() if self.here else _PORT)
        words = [sys.executable, "-m", "deepspeed.launcher.runner"]
        if self.hosts is None:
            words += ["--num_gpus", str(self.processes)]
        else:
            first = "127.0.0.1" if self.here else next(iter(self.hosts.slots))
            words += ["--hostfile", str(self.hosts.path), "--master_addr", self.address or first]
            if self.here:
                words += ["--no_ssh_check"]
            elif len(self.hosts.slots) == 1:
                words += ["--force_multi"]  # else DeepSpeed takes the one machine for this one
        words += ["--master_port", str(port), "--log_level", "critical", "--module", "vtrim"]
        return [*words, *arguments]

    def check(self) -> None:
        """Refuses options that would do nothing.

        Raises:
            OptionError: names the option.
        """
        if self.hosts is None and self.address is not None:
            raise OptionError("--master-addr: only a run over a --hostfile has one.")
        if self.hosts is None and self.processes == 1 and self.port is not None:
            raise OptionError("--master-port: one process has none; give --num-gpus or leave it.")

    def check_programs(self) -> None:
        """Refuses what the launcher could not start.

        Raises:
            OptionError: a program that starts processes on other machines is not installed.
        """
        if self.here:
            return
        for program in ("pdsh", "ssh"):
            if shutil.which(program) is None:
                raise OptionError(
                    f"--hostfile: DeepSpeed starts processes on other machines through {program}, "
                    f"which is not installed. Install it, or type `torchrun --nnodes N --node-rank "
                    "I --nproc-per-node M --master-addr HOST -m vtrim train-draft ...` on each."
                )


def relaunch(launch: Launch, arguments: Sequence[str], device: str) -> int:
    """Runs ``vtrim ARGUMENTS`` under DeepSpeed's launcher; its exit code.

    All output goes to stderr; the first process leaves its result in the run folder.
    """
    environment = {"OMP_NUM_THREADS": "1", **os.environ, LAUNCHED_ENV: str(os.getpid())}
    if device == "cpu":
        environment["DS_ACCELERATOR"] = "cpu"
    # a session of their own: Ctrl-C shall reach the launchers, which would not wait for a
    # checkpoint, only through us
    process = subprocess.Popen(  # noqa: S603
        launch.command(arguments), env=environment, stdout=sys.stderr, start_new_session=True
    )
    return _wait(process)


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Passes signals on and waits, so that the processes can save; 130 after a signal."""
    received: list[int] = []

    def forward(number: int, _frame: object) -> None:
        received.append(number)
        _stop(process)

    previous = {
        s: signal.signal(s, forward) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        code = process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 130 if received else code


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Asks the training processes to stop; those on other machines through the launcher."""
    try:
        below = psutil.Process(process.pid).children(recursive=True)
        ranks = [child for child in below if any(_RANK in word for word in child.cmdline())]
        for rank in ranks:
            rank.terminate()
    except psutil.NoSuchProcess:  # it has just ended by itself
        return
    if not ranks:
        os.killpg(process.pid, signal.SIGTERM)


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


def leave_group() -> None:
    """Ends a group of several: threads that it leaves behind can abort a process as it exits."""
    import torch.distributed as dist

    if dist.get_world_size() > 1:
        dist.barrier()
        dist.destroy_process_group()


def check_processes(device: str, launch: Launch) -> None:
    """Refuses more processes on this machine than it has GPUs.

    Raises:
        OptionError: names both numbers.
    """
    import torch

    here = launch.processes
    if launch.hosts is not None:
        here = sum(n for name, n in launch.hosts.slots.items() if is_this_machine(name))
    if device.startswith("cuda") and here > torch.cuda.device_count():
        raise OptionError(
            f"{here} processes: this machine has {torch.cuda.device_count()} GPUs. "
            "Give fewer, or --device cpu for CPU ranks."
        )
