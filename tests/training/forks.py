"""A process that has imported everything once and forks ``vtrim`` commands on demand.

Reads one JSON object a line: {"arguments", "processes", "log", "fault"}; answers with the ids of
the processes, and later, asked for {"wait": [ids], "seconds"}, with how they ended. A fault makes
one step of one process go wrong: {"step", "rank", "what": "loss" or "gradient"}.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed  # noqa: F401
import torch

import vtrim.decoding.engine
import vtrim.evaluation.pairing
import vtrim.models.target
import vtrim.training.run  # noqa: F401
from vtrim.cli.main import main
from vtrim.training.feeder import Feeder
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
    if asked["fault"] is not None and asked["fault"]["rank"] == rank:
        go_wrong(**asked["fault"])
    code = 1
    try:
        main(asked["arguments"])
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        if sys.exc_info()[0]:
            traceback.print_exc()  # _exit would swallow it
        sys.stdout.flush()
        os._exit(code)


def go_wrong(step: int, rank: int, what: str) -> None:
    """Makes the first micro-batch of a step (from 0) infinite, in loss or gradient alone."""
    del rank
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
