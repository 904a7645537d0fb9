"""Kills a training run at random moments, resumes it each time, and compares it with a whole run.

    OMP_NUM_THREADS=1 python benchmarks/training/kill.py --target DIR [--kills 20] [--only NAME]

DIR is a small causal LM with a tokenizer. Every attempt is ``vtrim train-draft`` in forked
processes, ended by SIGKILL a random number of steps and a random fraction of a second on (none:
while it starts or resumes); between attempts all files are looked at: what bears a final name must
be whole. At the end the loss curve must be the whole run's, every digit of it, and the draft must
have the same bytes. Forking spares each attempt the seconds of importing torch.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed  # noqa: F401 - imported once, before the forks
import numpy as np
import torch
from safetensors.torch import load_file

import vtrim.decoding.engine
import vtrim.evaluation.pairing
import vtrim.models.target
import vtrim.training.run  # noqa: F401
from vtrim.cli.main import main
from vtrim.training.checkpoint import list_checkpoints, read_listing

COMMON = "--micro-batch 4 --ttt-steps 3 --lr 3e-3 --eval-every 10 --save-every 3 --device cpu"
COMMON += " --cache-gib 0 --max-steps"
SCENARIOS: dict[str, tuple[int, str]] = {
    "adamw-fp32-zero0": (1, "--dtype fp32 --zero-stage 0 --decode-eval 2"),
    "adamw-bf16-zero1": (1, "--dtype bf16 --zero-stage 1"),
    "muon-bf16-zero1": (1, "--dtype bf16 --zero-stage 1 --optimizer muon --muon-lr 0.02"),
    "two-fp32-zero1": (2, "--dtype fp32 --zero-stage 1"),
    "two-bf16-zero3": (2, "--dtype bf16 --zero-stage 3"),
    "packed-noise-fp32": (1, "--dtype fp32 --zero-stage 0 --packing --noise 0.2"),
    "features-on-disk": (1, "--dtype fp32 --zero-stage 0 --cache-features {run}/features"),
}
"""Name -> processes and options."""

WORDS = "the cat dog fox owl bee red blue green gold grey one two three four five six yes no"


def need(condition: bool, message: str) -> None:
    """Ends the benchmark when what must hold does not."""
    if not condition:
        raise RuntimeError(message)


def attempt(arguments: list[str], processes: int, log: Path) -> list[int]:
    """Starts ``vtrim`` with these arguments in forked processes; their ids."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(processes):
        child = os.fork()
        if child:
            children.append(child)
            continue
        place = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(place, 1)
        os.dup2(place, 2)
        if processes > 1:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(processes))
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        code = 1
        try:
            main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            if sys.exc_info()[0]:
                traceback.print_exc()  # _exit would swallow it
            sys.stdout.flush()
            os._exit(code)
    return children


def wait(children: list[int], seconds: float, run: Path | None = None, step: int = 0) -> int | None:
    """The worst exit code when all have ended, else None: the time is up or the step is logged."""
    deadline, worst = time.monotonic() + seconds, 0
    while children and time.monotonic() < deadline and (run is None or steps_of(run) < step):
        for child in list(children):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                children.remove(child)
                worst = max(worst, abs(os.waitstatus_to_exitcode(status)))
        time.sleep(0.002)
    return None if children else worst


def must(children: list[int], log: Path) -> None:
    """Waits for an attempt that nobody kills."""
    code = wait(children, 900)
    need(code == 0, f"exit code {code}\n{log.read_text()[-3000:]}")


def kill(children: list[int], rng: np.random.Generator) -> None:
    """SIGKILL for one of them, then, as a launcher does, for the others."""
    for child in rng.permutation(children).tolist():
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        time.sleep(0.05 if len(children) > 1 else 0)


def look(run: Path) -> dict[str, int]:
    """Refuses any half file under a final name; counts what the kill left under hidden names."""
    train = run / "train"
    for checkpoint in list_checkpoints(train / "checkpoints"):
        read_listing(checkpoint)
    for weights in [*train.glob("best/step-*"), *run.glob("draft/model.safetensors")]:
        found = load_file(weights)
        need(all(t.float().isfinite().all() for t in found.values()), f"{weights} is not finite")
    for path in [train / "settings.json", *run.glob("draft/config.json"), run / "run.json"]:
        if path.exists():
            json.loads(path.read_text())
    log = train / "metrics.jsonl"
    lines = log.read_bytes().split(b"\n") if log.exists() else [b""]
    for line in lines[:-1]:
        json.loads(line)
    hidden = [p.name for p in train.rglob(".*")]
    return {"saving": any(n.startswith(".writing") for n in hidden), "cut_line": lines[-1] != b""}


def curve(run: Path) -> list[dict[str, Any]]:
    """The log without its times."""
    lines = (run / "train" / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def steps_of(run: Path) -> int:
    """Steps logged so far."""
    log = run / "train" / "metrics.jsonl"
    return log.read_bytes().count(b'"train"') if log.exists() else 0


def prepare(folder: Path, target: str) -> Path:
    """A run folder after coverage and search."""
    words, rng = WORDS.split(), np.random.default_rng(5)
    rows = []
    for _ in range(120):
        start = int(rng.integers(len(words)))
        reply = " ".join(words[(start + j) % len(words)] for j in range(int(rng.integers(3, 10))))
        asked = {"role": "user", "content": " ".join(rng.choice(words, 4))}
        rows.append({"messages": [asked, {"role": "assistant", "content": reply}]})
    chat, run, log = folder / "chat.jsonl", folder / "base", folder / "base.log"
    chat.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for line in (["coverage", str(chat), "--target", target], ["search", "--cmin", "0.9"]):
        must(attempt([*line, "--run", str(run)], 1, log), log)
    return run


def scenario(
    name: str, base: Path, steps: int, kills: int, rng: np.random.Generator
) -> dict[str, Any]:
    """One run with kills against the whole one."""
    processes, options = SCENARIOS[name]
    whole, killed = (base.with_name(f"{name}-{kind}") for kind in ("whole", "killed"))
    log = base.with_name(f"{name}.log")

    def start(run: Path) -> list[int]:
        shutil.copytree(base, run, dirs_exist_ok=True) if not run.exists() else None
        line = f"train-draft --run {run} {COMMON} {steps} {options.format(run=run)}"
        return attempt(line.split(), processes, log)

    must(start(whole), log)
    moments: list[int] = []
    found = {"saving": 0, "cut_line": 0}
    while len(moments) < kills:
        left = kills - len(moments)
        ahead = int(rng.integers(0, 2 * (steps - steps_of(killed)) // (left + 2) + 1))
        children = start(killed)
        if (code := wait(children, 600, killed, steps_of(killed) + ahead)) is not None:
            need(code == 0, log.read_text()[-3000:])
            break
        if (code := wait(children, rng.uniform(0, 0.2 if ahead else 3.0))) is not None:
            need(code == 0, log.read_text()[-3000:])
            break
        kill(children, rng)
        moments.append(steps_of(killed))
        for what, seen in look(killed).items():
            found[what] += seen
    must(start(killed), log)
    look(killed)
    weights = "draft/model.safetensors"
    return {
        "scenario": name,
        "processes": processes,
        "steps": steps,
        "kills": len(moments),
        "steps_logged_at_each_kill": moments,
        "kills_in_mid_save": found["saving"],
        "log_lines_cut": found["cut_line"],
        "same_curve": curve(killed) == curve(whole),
        "same_draft": (killed / weights).read_bytes() == (whole / weights).read_bytes(),
    }


def run_all() -> None:
    """Parses the arguments, runs the scenarios, prints one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--keep", type=Path, help="Folder to leave the runs in.")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", choices=sorted(SCENARIOS), nargs="*", default=list(SCENARIOS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        base = prepare(options.keep or Path(folder), str(Path(options.target).resolve()))
        for name in options.only:
            rng = np.random.default_rng((options.seed, *name.encode()))
            result = scenario(name, base, options.steps, options.kills, rng)
            failed |= not (result["same_curve"] and result["same_draft"])
            sys.stdout.write(json.dumps({"seed": options.seed, **result}) + "\n")
            sys.stdout.flush()
    sys.exit(failed)


if __name__ == "__main__":
    run_all()
