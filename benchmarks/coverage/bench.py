"""Counting chat files: vtrim against other tools' ways, CPU seconds on one core, one run.

Usage: python benchmarks/coverage/bench.py DATA... --tokenizers DIR [--repeats 5] [--out NAME]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("RAYON_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from peers import DIALECTS, FLOOR, PEERS, Messages, bare_replies
from table import as_markdown

VTRIM = ("tokenizers", "gigatoken")
PACKAGES = ("vtrim", "tokenizers", "transformers", "gigatoken", "torch", "numpy")


def main() -> None:
    """Measures, prints and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--tokenizers", type=Path, required=True, help="a folder for each model")
    parser.add_argument("--models", nargs="+", default=sorted(DIALECTS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer-step", type=int, default=8, help="peers count every n-th row")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("last_result"))
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        encoder, times = options.peak.split(",")
        tokenizer = load(options.tokenizers, options.models[0])
        sys.stdout.write(json.dumps(peak(options.data, tokenizer, encoder, int(times))))
        return
    result: dict[str, Any] = {
        "data": [path.name for path in options.data],
        "machine": machine(),
        "repeats": options.repeats,
        "peers_count_every": options.peer_step,
        "models": {name: compare(options, name) for name in options.models},
    }
    result["memory_mib"] = {
        f"{encoder}, {times} x": peak_apart(options, encoder, times)
        for encoder in VTRIM
        for times in (1, 10)
    }
    options.out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    options.out.with_suffix(".md").write_text(as_markdown(result))
    sys.stdout.write(as_markdown(result))


def load(folder: Path, name: str) -> Any:
    """A tokenizer with its own chat template, or with the dialect's where it ships none."""
    from transformers import AutoTokenizer

    [found, *_] = sorted((folder / name).rglob("tokenizer.json"))
    tokenizer = AutoTokenizer.from_pretrained(found.parent)
    tokenizer.chat_template = tokenizer.chat_template or DIALECTS[name].template
    return tokenizer


def compare(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Best CPU seconds and tokens of every way, alternated in this process."""
    tokenizer, dialect = load(options.tokenizers, name), DIALECTS[name]
    everything = messages(options.data)
    few = everything[:: options.peer_step]
    ways: dict[str, Callable[[], tuple[float, int]]] = {
        FLOOR: lambda: spent(lambda: bare_replies(tokenizer, dialect, everything))
    }
    for peer, way in PEERS.items():
        ways[peer] = lambda way=way: spent(lambda: way(tokenizer, dialect, few))
    started: dict[str, float] = {}
    for encoder in VTRIM:
        ways[f"vtrim, {encoder}"] = lambda encoder=encoder: counted(
            options.data, tokenizer, encoder, started
        )
    best: dict[str, tuple[float, int]] = {}
    refused: dict[str, str] = {}
    for _ in range(options.repeats):
        for label, way in ways.items():
            if label in refused:
                continue
            try:
                best[label] = min(way(), best.get(label, (float("inf"), 0)))
            except Exception as error:  # noqa: BLE001 - an encoder that does not take this one
                refused[label] = str(error)
    rates = {label: round(tokens / seconds) for label, (seconds, tokens) in best.items()}
    return {
        "conversations": len(everything),
        "tokens": best["vtrim, tokenizers"][1],
        "cpu_seconds": {label: round(seconds, 3) for label, (seconds, _) in best.items()},
        "tokens_per_cpu_second": rates,
        "start_cpu_seconds": {name: round(seconds, 2) for name, seconds in started.items()},
        "not_measured": refused,
    }


def counted(
    files: list[Path], tokenizer: Any, encoder: Any, started: dict[str, float]
) -> tuple[float, int]:
    """CPU seconds from files to counts as ``vtrim coverage`` makes them, and the tokens.

    What it takes to prove the encoder once a process is kept apart, in ``started``.
    """
    from vtrim.artifacts import fingerprint_file
    from vtrim.chat.feed import ReplyFeed
    from vtrim.chat.read import read_conversations
    from vtrim.chat.render import Renderer
    from vtrim.chat.skips import SkipLog
    from vtrim.trimming.count import Tally

    tally = Tally(len(tokenizer))
    before = time.process_time()
    feed = ReplyFeed(Renderer(tokenizer), encoder=encoder, sample=tally.sample)
    start = time.process_time()
    for path in files:
        fingerprint_file(path)
    tally.update(feed.feed(read_conversations(files, skipped=SkipLog())))
    seconds = time.process_time() - start
    started[encoder] = min(start - before, started.get(encoder, float("inf")))
    return seconds, int(tally.counts.sum())


def spent(work: Callable[[], int]) -> tuple[float, int]:
    """CPU seconds of this process, all threads, and the tokens."""
    started = time.process_time()
    tokens = work()
    return time.process_time() - started, tokens


def messages(files: list[Path]) -> list[Messages]:
    """Roles and texts of all conversations without tools, calls and the like."""
    from vtrim.chat.read import read_conversations
    from vtrim.chat.skips import SkipLog

    rows = read_conversations(files, skipped=SkipLog())
    return [list(row.messages) for row in rows if row.is_plain]


def peak(files: list[Path], tokenizer: Any, encoder: str, times: int) -> dict[str, float]:
    """Resident memory with the tokenizer loaded, and the highest until all was counted [MiB]."""
    loaded = memory("VmRSS")
    counted(files * times, tokenizer, encoder, {})
    return {"loaded": loaded, "peak": memory("VmHWM")}


def memory(field: str) -> float:
    """A line of /proc/self/status [MiB]."""
    status = Path("/proc/self/status").read_text().splitlines()
    [line] = (line for line in status if line.startswith(field))
    return round(int(line.split()[1]) / 1024, 1)


def peak_apart(options: argparse.Namespace, encoder: str, times: int) -> Any:
    """``peak`` in a process of its own, for the first model."""
    command = [sys.executable, __file__, *options.data, "--tokenizers", options.tokenizers]
    command += ["--models", options.models[0], "--peak", f"{encoder},{times}"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)  # noqa: S603
    return json.loads(done.stdout)


def machine() -> dict[str, Any]:
    """The processor, its cores, and the versions of what was measured."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
    }


if __name__ == "__main__":
    main()
