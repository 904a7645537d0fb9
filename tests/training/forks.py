"""A process that has imported everything once and forks ``vtrim`` commands on demand.

Reads one JSON object a line: {"arguments", "processes", "log", "fault"}; answers with the ids of
the processes, and later, asked for {"wait": [ids], "seconds"}, with how they ended. A fault makes
one step of one process go wrong: {"step", "rank" (None: all), "what": a name of FAULTS}.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch

import vtrim.decoding.engine
import vtrim.evaluation.pairing
import vtrim.models.target
import vtrim.training.run
from vtrim.cli.main import main
from vtrim.training.feeder import Feeder
from vtrim.training.selection import Selection
from vtrim.training.ttt import TTTModel


def spawn(asked: dict[str, Any]) -> list[int]:
    """Forks the processes of one command."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(asked["processes"]):
        child = os.fork()
        if child:
            children.append(child)
            continue
        if asked["processes"] > 1:
            group = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": asked["processes"]}
            os.environ.update({name: str(value) for name, value in group.items()})
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        run(asked, rank)
    return children


def run(asked: dict[str, Any], rank: int) -> None:
    """One command in this process, which then ends."""
    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdin.close()
    words = asked["arguments"]
    if asked["fault"] is not None and asked["fault"]["rank"] in (rank, None):
        if asked["fault"]["what"] == "elsewhere":  # a machine with a disk of its own
            words = [f"{word}-elsewhere" if words[i - 1] == "--run" else word
                     for i, word in enumerate(words)]  # fmt: skip
        else:
            FAULTS[asked["fault"]["what"]](asked["fault"]["step"])
    code = 1
    try:
        main(words)
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        if sys.exc_info()[0]:
            traceback.print_exc()  # _exit would swallow it
        sys.stdout.flush()
        os._exit(code)


def not_finite(step: int, what: str) -> None:
    """Makes the first micro-batch of a step (from 0) infinite, in loss or gradient alone."""
    work, forward = Feeder.work, TTTModel.forward
    armed = []

    def watched(self: Any, number: int) -> Any:
        if number == step:
            armed.append(number)
        return work(self, number)

    def broken(self: Any, *arguments: Any) -> Any:
        if armed and what == "loss":
            arguments[1].aux.fill_(torch.inf)
        out = forward(self, *arguments)
        if armed and what == "gradient":
            out.total.register_hook(lambda gradient: gradient * torch.inf)
        armed.clear()
        return out

    Feeder.work, TTTModel.forward = watched, broken  # type: ignore[method-assign]


def unguarded(step: int) -> None:
    """A loss that is not finite, and a DeepSpeed that takes the step all the same."""
    not_finite(step, "loss")
    deepspeed.DeepSpeedEngine.was_step_applied = lambda _self: True


def full_disk(step: int) -> None:
    """No file of the checkpoint of this step can be written."""
    save = torch.save

    def full(value: Any, file: Any, *arguments: Any, **named: Any) -> None:
        if f"step-{step:08d}" in str(file):
            raise OSError(28, "No space left on device")
        save(value, file, *arguments, **named)

    torch.save = full


def long_check(step: int) -> None:
    """A check of the draft that takes seconds and says when it begins."""
    check = Selection.check

    def slow(self: Any, state: Any) -> Any:
        if state.step == step:
            sys.stdout.write("checking\n")
            sys.stdout.flush()
            time.sleep(1.5)
        return check(self, state)

    Selection.check = slow  # type: ignore[method-assign]


def long_load(_step: int) -> None:
    """A target that takes a minute to load."""

    def slow(*_arguments: Any, **_named: Any) -> None:
        sys.stdout.write("loading\n")
        sys.stdout.flush()
        time.sleep(60)

    vtrim.models.target.load_target = slow  # type: ignore[assignment]


FAULTS: dict[str, Callable[[int], None]] = {
    "loss": partial(not_finite, what="loss"),
    "gradient": partial(not_finite, what="gradient"),
    "unguarded": unguarded,
    "full disk": full_disk,
    "long check": long_check,
    "long load": long_load,
}


def wait(children: list[int], seconds: float) -> list[int | None]:
    """How each of them ended; None for those that have not."""
    codes: dict[int, int] = {}
    deadline = time.monotonic() + seconds
    while len(codes) < len(children) and time.monotonic() < deadline:
        for child in children:
            if child not in codes:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    codes[child] = os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return [codes.get(child) for child in children]


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in sys.stdin:
        said = json.loads(line)
        answer = wait(said["wait"], said["seconds"]) if "wait" in said else spawn(said)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
