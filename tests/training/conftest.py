"""Real training runs in forked processes: each spares the seconds of importing torch."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Forks:
    """Starts ``vtrim`` commands in forks of one process, and waits for them."""

    server: subprocess.Popen[str]

    def _ask(self, question: dict[str, Any]) -> list[Any]:
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(question) + "\n")
        self.server.stdin.flush()
        answer: list[Any] = json.loads(self.server.stdout.readline())
        return answer

    def start(
        self,
        *arguments: object,
        log: Path,
        processes: int = 1,
        fault: dict[str, Any] | None = None,
    ) -> list[int]:
        """The ids of the processes that run the command; their output goes to ``log``."""
        words = [str(a) for a in arguments]
        asked = {"arguments": words, "processes": processes, "log": str(log), "fault": fault}
        return self._ask(asked)

    def wait(self, children: list[int], seconds: float = 240) -> list[int]:
        """Their exit codes; the test fails when one has not ended in time."""
        codes = self._ask({"wait": children, "seconds": seconds})
        for child, code in zip(children, codes, strict=True):
            if code is None:
                os.kill(child, signal.SIGKILL)
        assert None not in codes, "a process has not ended"
        return codes


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """The server of forks."""
    script = Path(__file__).with_name("forks.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(
        [sys.executable, str(script)],
        env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    yield Forks(server)
    server.communicate()


@pytest.fixture(scope="session")
def counted_run(
    forks: Forks, tiny_target: Path, tiny_chat: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run folder after coverage and search."""
    folder = tmp_path_factory.mktemp("counted")
    log = folder / "log"
    for line in (["coverage", tiny_chat, "--target", tiny_target], ["search", "--cmin", "0.8"]):
        assert forks.wait(forks.start(*line, "--run", folder / "run", log=log)) == [0], (
            log.read_text()
        )
    return folder / "run"


@dataclass
class Training:
    """One run folder and what is typed for it."""

    forks: Forks
    run: Path

    @property
    def log(self) -> Path:
        """Everything the commands printed."""
        return self.run.with_suffix(".log")

    @property
    def folder(self) -> Path:
        """train/ of the run."""
        return self.run / "train"

    def start(self, *options: object, **how: Any) -> list[int]:
        """The ids of the processes that train."""
        small = "--micro-batch 4 --ttt-steps 3 --lr 3e-3 --cache-gib 0 --device cpu --run"
        words = ["train-draft", *small.split(), self.run, *options]
        return self.forks.start(*words, log=self.log, **how)

    def train(self, *options: object, code: int = 0, **how: Any) -> str:
        """Trains to the end; what was printed meanwhile."""
        before = len(self.log.read_text()) if self.log.exists() else 0
        codes = self.forks.wait(self.start(*options, **how))
        said = self.log.read_text()[before:]
        assert set(codes) == {code}, said
        return said

    def entries(self, *kinds: str) -> list[dict[str, Any]]:
        """Log entries of these kinds (all by default), without their times."""
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        found = [{k: v for k, v in json.loads(x).items() if k != "seconds"} for x in lines]
        return [entry for entry in found if not kinds or entry["kind"] in kinds]

    def result(self) -> dict[str, Any]:
        """What run.json notes of the finished step."""
        found: dict[str, Any] = json.loads((self.run / "run.json").read_text())
        entry: dict[str, Any] = found["steps"]["train-draft"]
        return entry

    def checkpoints(self) -> list[str]:
        """Names of the checkpoints, oldest first."""
        return sorted(p.name for p in (self.folder / "checkpoints").iterdir())


@pytest.fixture
def training(forks: Forks, counted_run: Path, tmp_path: Path) -> Callable[[str], Training]:
    """training(name) -> a fresh copy of the counted run."""

    def make(name: str = "run") -> Training:
        shutil.copytree(counted_run, tmp_path / name)
        return Training(forks, tmp_path / name)

    return make
