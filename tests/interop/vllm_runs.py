"""Runs of vLLM for the tests, and what they gave."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

NUM_PROMPTS, NEW_TOKENS, DRAFT_TOKENS = 6, 128, 3


class VllmError(Exception):
    """vLLM's own traceback."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """prompts and tokens: how many prompts, and tokens of each reply. target False: none named."""

    draft: Path | None
    target: bool = True
    prompts: int = NUM_PROMPTS
    tokens: int = NEW_TOKENS


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one engine did.

    replies: token ids, the prefill's token first; chains: of each prompt, what was drafted behind
    each of its tokens that ended a round; rounds, accepted: as the engine counts them itself, for
    vLLM with the tokens that were accepted behind the end of a reply.
    """

    replies: list[list[int]]
    chains: list[list[list[int]]]
    rounds: int = 0
    accepted: int = 0

    @property
    def acceptance_length(self) -> float:
        """vLLM's definition: 1 + accepted / drafts."""
        return 1 + self.accepted / self.rounds

    def steps(self, prompt: int) -> Iterator[tuple[int, int]]:
        """(tokens of the reply before it, drafted tokens kept) of each round of a prompt."""
        reply, place = self.replies[prompt], 1
        for chain in self.chains[prompt]:
            if place >= len(reply):
                return
            kept = 0
            while kept < len(chain) and chain[kept : kept + 1] == reply[place + kept :][:1]:
                kept += 1
            yield place, kept
            place += kept + 1


class Vllm:
    """vLLM in its own environment. A job is run once; VllmError where vLLM fails."""

    def __init__(self, python: str, target: Path, prompts: list[list[int]], folder: Path) -> None:
        self.target, self.prompts, self.folder = target, prompts, folder
        self.done: dict[Job, Run | VllmError] = {}
        self.errors = (folder / "stderr").open("w")
        self.process = subprocess.Popen(
            [python, str(Path(__file__).with_name("vllm_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def __call__(self, job: Job) -> Run:
        if job not in self.done:
            self.done[job] = self.run(job)
        found = self.done[job]
        if isinstance(found, VllmError):
            raise found
        return found

    def run(self, job: Job) -> Run | VllmError:
        out, log = (self.folder / f"{len(self.done)}.{end}" for end in ("json", "log"))
        asked = {
            "target": str(self.target) if job.target else None,
            "draft": str(job.draft) if job.draft else None,
            "prompts": self.prompts[: job.prompts],
            "max_new_tokens": job.tokens,
            "num_draft_tokens": DRAFT_TOKENS,
            "out": str(out),
            "log": str(log),
        }
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        print(json.dumps(asked), file=stdin, flush=True)
        status = stdout.readline()
        if status == "0\n":
            return Run(**json.loads(out.read_text()))
        if log.exists():
            return VllmError(log.read_text())
        tail = (self.folder / "stderr").read_text()[-2000:]
        pytest.fail(f"vLLM's process ended (status {status!r}):\n{tail}")

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()
