"""How every engine of speed.py is timed. Needs nothing but Python, so that any environment runs it.

The decode time of a prompt is the time of its reply less the time of its first token alone, in
the same process: the prefill drops out in the same way for all engines. Tokens per second are the
tokens behind the first over it, all prompts together.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

WARM_UP_TOKENS = 8

Reply = Callable[[list[int], int], list[int]]
"""(prompt ids, most new tokens) -> the reply's ids, the stop token included."""


@dataclass(frozen=True)
class Job:
    """What a child process is asked to do; it comes as JSON on stdin.

    prompts: token ids; stop_ids end a reply; draft: folder of the trained draft, or None.
    """

    engine: str
    target: str
    prompts: list[list[int]]
    stop_ids: list[int]
    max_new_tokens: int
    num_draft_tokens: int
    draft: str | None

    def encode(self) -> str:
        """As a child reads it."""
        return json.dumps(asdict(self))


def read_job() -> Job:
    """The job on stdin."""
    return Job(**json.load(sys.stdin))


def answer(job: Job, reply: Reply) -> None:
    """Times the job and prints one line of JSON, the last line of stdout."""
    for prompt in job.prompts[:2]:
        reply(prompt, WARM_UP_TOKENS)
    tokens, wall, cpu, replies = 0, 0.0, 0.0, []
    for prompt in job.prompts:
        first = _timed(reply, prompt, 1)
        whole = _timed(reply, prompt, job.max_new_tokens)
        tokens += len(whole[0]) - 1
        wall += whole[1] - first[1]
        cpu += whole[2] - first[2]
        replies.append(whole[0])
    result: dict[str, Any] = {
        "engine": job.engine,
        "tokens": tokens,
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "tokens_per_wall_second": tokens / wall,
        "tokens_per_cpu_second": tokens / cpu,
        "replies": replies,
    }
    print("\n" + json.dumps(result), flush=True)  # noqa: T201


def _timed(reply: Reply, prompt: list[int], count: int) -> tuple[list[int], float, float]:
    """The reply, its wall-clock seconds and its CPU seconds of all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    ids = reply(prompt, count)
    return ids, time.perf_counter() - wall, time.process_time() - cpu


def one_thread() -> dict[str, str]:
    """The environment of a child: one thread, nothing fetched, no progress bars."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
