"""CPU time and memory of a training step, against the order of work of other trainers.

    OMP_NUM_THREADS=1 python benchmarks/training/step.py [--quick] [--profile]

See README.md beside this file for what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from case import TARGET, Case, build
from profiling import parts
from report import put_table, summary, table

from vtrim.chat.read import read_conversations
from vtrim.chat.render import Renderer
from vtrim.chat.skips import SkipLog
from vtrim.config import recipes_folder
from vtrim.models.hub import load_tokenizer
from vtrim.models.target import load_target
from vtrim.training.batch import TrainSample
from vtrim.training.data import split_samples

HERE = Path(__file__).parent
SMALL, FULL, BATCH, LENGTH = 8192, 49152, 2, 1024

ROUNDS: dict[int, list[Case]] = {
    3: [
        Case("specforge", SMALL),
        Case("eagle", SMALL),
        Case("vtrim", SMALL),
        Case("vtrim", SMALL, rows="all"),
        Case("vtrim", SMALL, length=1024),
        Case("vtrim", SMALL, "bf16"),
        Case("vtrim", SMALL, "bf16", length=1024),
    ],
    2: [
        Case("specforge", FULL),
        Case("eagle", FULL),
        Case("vtrim", FULL),
        Case("vtrim", FULL, "bf16"),
    ],
}
"""Rounds and the cases that take turns in them; all of a group live at the same time."""


def samples() -> list[TrainSample]:
    """The training samples of the demo, shuffled."""
    renderer = Renderer(load_tokenizer(TARGET))
    replies = recipes_folder() / "demo" / "replies.jsonl.gz"
    conversations = read_conversations([replies], skipped=SkipLog())
    rendered = (s for c in conversations for s in renderer.samples(c))
    found = split_samples(rendered, "exact").train
    return [found[i] for i in np.random.default_rng(0).permutation(len(found))]


@torch.no_grad()
def write_inputs(path: Path) -> dict[str, float]:
    """Real text and the real target's states, fp32; tokens ranked by frequency in replies.

    ids, mask: [B, T], conversations one after the other as one text; aux: [B, T, 3d]; hidden:
    [B, T, d]; ranked: [V].
    """
    chosen = samples()
    counts = np.bincount(np.concatenate([s.ids[s.loss_mask] for s in chosen]), minlength=FULL)
    ids, mask = (
        torch.from_numpy(np.concatenate(parts)[: BATCH * LENGTH].reshape(BATCH, LENGTH))
        for parts in ([s.ids for s in chosen], [s.loss_mask for s in chosen])
    )
    out = load_target(TARGET, dtype=torch.float32).forward(ids)
    ranked = torch.from_numpy(np.argsort(-counts, kind="stable"))
    torch.save(
        {"ids": ids, "mask": mask, "aux": out.aux, "hidden": out.hidden, "ranked": ranked}, path
    )
    return {"512": float(mask[:, :512].float().mean()), "1024": float(mask.float().mean())}


class Worker:
    """A process that runs one case, a step at a time."""

    def __init__(self, case: Case, inputs: Path) -> None:
        command = [sys.executable, str(HERE / "case.py"), json.dumps(vars(case)), str(inputs)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.case = case
        self.done: list[dict[str, float]] = []

    def read(self) -> str:
        """The next line of the process."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise SystemExit(f"{self.case.name}: the process ended")
        return line

    def step(self) -> None:
        """One step."""
        if self.process.stdin:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        self.done.append(json.loads(self.read()))

    def close(self) -> dict[str, Any]:
        """Ends the process; the least CPU time, all of them, and the highest peak."""
        self.process.communicate()
        seconds = [d["seconds"] for d in self.done]
        return {
            **vars(self.case),
            "cpu_seconds": round(min(seconds), 3),
            "rounds": [round(s, 3) for s in seconds],
            "peak_mb": round(max(d["peak"] for d in self.done)),
            "first_loss": round(self.done[0]["loss"], 3),
        }


def measure(cases: list[Case], rounds: int, inputs: Path) -> list[dict[str, Any]]:
    """Alternates the cases; the first round is a step like the others and warms up."""
    workers = []
    for case in cases:
        worker = Worker(case, inputs)
        worker.read()
        workers.append(worker)
    for _ in range(rounds):
        for worker in workers:
            worker.step()
            print(f"  {worker.case.name}: {worker.done[-1]}", file=sys.stderr, flush=True)  # noqa: T201
    return [worker.close() for worker in workers]


def main() -> None:
    """Measures, prints and stores; or profiles one step of ours."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--quick", action="store_true", help="only k 8192, two rounds, nothing stored"
    )
    parser.add_argument("--profile", action="store_true", help="where the time of our step goes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.pt"
        shares = write_inputs(inputs)
        if options.profile:
            for case in (Case("vtrim", SMALL), Case("vtrim", SMALL, "bf16"), Case("vtrim", FULL)):
                print(case.name, json.dumps(parts(*build(case, torch.load(inputs))), indent=1))  # noqa: T201
            return
        groups = {2: ROUNDS[3]} if options.quick else ROUNDS
        measured = [m for rounds, cases in groups.items() for m in measure(cases, rounds, inputs)]
    result = {
        "reply_share": shares,
        "ratios": summary(measured, SMALL, FULL),
        "cases": measured,
        "torch": torch.__version__,
    }
    print(table(measured, result["ratios"]))  # noqa: T201
    if not options.quick:
        (HERE / "result.json").write_text(json.dumps(result, indent=1) + "\n")
        put_table(HERE / "README.md", table(measured, result["ratios"]))


if __name__ == "__main__":
    main()
