"""Counting a chat file against encoding its bare reply texts: CPU seconds and peak memory.

Usage: python benchmarks/coverage/bench.py DATA.jsonl TOKENIZER_DIR [--repeats 5] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("RAYON_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
CHUNK = 1000


def main() -> None:
    """Measures, prints and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("last_result.json"))
    parser.add_argument("--peak-of", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak_of is not None:
        write(peak(options.data, options.tokenizer, options.peak_of), None)
        return
    result = compare(options.data, options.tokenizer, options.repeats)
    result["peak_memory"] = {
        f"{times}x": measured_apart(options.data, options.tokenizer, times) for times in (1, 10)
    }
    write(result, options.out)


def write(result: Any, path: Path | None) -> None:
    """Prints the result as JSON, and keeps it in ``path``."""
    text = json.dumps(result, indent=1) + "\n"
    sys.stdout.write(text)
    if path is not None:
        path.write_text(text)


def compare(data: Path, folder: Path, repeats: int) -> dict[str, Any]:
    """CPU seconds of both, alternated in this process after one warm-up each."""
    model = load(folder)
    texts = reply_texts(data)
    backend = model.tokenizer.backend_tokenizer
    tokens = counted(data, model)
    encoded(backend, texts)
    spent: dict[str, list[float]] = {"vtrim coverage": [], "encode_batch_fast": []}
    for _ in range(repeats):
        spent["encode_batch_fast"].append(cpu_seconds(lambda: encoded(backend, texts)))
        spent["vtrim coverage"].append(cpu_seconds(lambda: counted(data, model)))
    best = {name: min(seconds) for name, seconds in spent.items()}
    pairs = zip(spent["vtrim coverage"], spent["encode_batch_fast"], strict=True)
    return {
        "data": data.name,
        "replies": len(texts),
        "reply_tokens": tokens,
        "tokenizer_length": len(model.tokenizer),
        "cpu_seconds": {name: [round(s, 3) for s in seconds] for name, seconds in spent.items()},
        "tokens_per_cpu_second": {name: round(tokens / s) for name, s in best.items()},
        "ratio_of_best": round(best["vtrim coverage"] / best["encode_batch_fast"], 3),
        "ratio_median_of_pairs": round(statistics.median(a / b for a, b in pairs), 3),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one tokenizer thread",
    }


def load(folder: Path) -> Any:
    """The tokenizer and what the command knows of it; not part of either time."""
    from vtrim.artifacts import Run
    from vtrim.cli import common
    from vtrim.cli.coverage_steps import load_model

    common.set_verbosity(quiet=True, verbose=False)
    return load_model(Run("unused"), None, str(folder), None, None, False, True)


def counted(data: Path, model: Any, times: int = 1) -> int:
    """File to counts, as the command does it: fingerprint, JSON, masks, held-out split, counts."""
    from vtrim.cli.coverage_steps import count_replies, describe

    files = describe([data] * times)
    return count_replies(model, files, max_length=None, skip_bad_rows=False).coverage.total


def encoded(backend: Any, texts: list[str]) -> int:
    """The reply texts alone, already in memory: no JSON, no template, no end of turn, no counts."""
    return sum(
        len(encoding)
        for start in range(0, len(texts), CHUNK)
        for encoding in backend.encode_batch_fast(
            texts[start : start + CHUNK], add_special_tokens=False
        )
    )


def reply_texts(data: Path) -> list[str]:
    """All assistant texts of the file."""
    from vtrim.chat.read import read_conversations
    from vtrim.chat.skips import SkipLog

    rows = read_conversations([data], skipped=SkipLog())
    return [reply for row in rows for reply in row.replies]


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of this process, all threads, while ``work`` runs [s]."""
    started = time.process_time()
    work()
    return time.process_time() - started


def peak(data: Path, folder: Path, times: int) -> dict[str, Any]:
    """Memory before and at the peak of counting the file ``times`` times over [MiB]."""
    model = load(folder)
    counted(data, model)  # what is loaded on first use does not count
    Path("/proc/self/clear_refs").write_text("5")  # Linux: forget the peak so far
    before = memory("VmRSS")
    tokens = counted(data, model, times)
    return {"tokens": tokens, "before_mib": before, "peak_mib": memory("VmHWM")}


def memory(field: str) -> float:
    """A line of /proc/self/status [MiB]."""
    status = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in status if line.startswith(field))
    return round(int(line.split()[1]) / 1024, 1)


def measured_apart(data: Path, folder: Path, times: int) -> Any:
    """``peak`` in a process of its own."""
    command = [sys.executable, __file__, data, folder, "--peak-of", str(times)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)  # noqa: S603
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
