"""Time and regret of ``vtrim search``.

    OMP_NUM_THREADS=1 python benchmarks/search/bench.py

The counts are drawn from Zipf-Mandelbrot laws, so that nothing has to be downloaded. The command
is timed as a user calls it, in a new process (wall clock, the least of several calls); the optimum
in CPU time, from the counts of a 262,144-row head to k. Writes last_result.json beside itself.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vtrim.artifacts import Run, write_json
from vtrim.shape import DraftShape
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.search import build_objective
from vtrim.trimming.settings import parse_settings
from vtrim.trimming.tpe import best_trial, tpe_trials

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
}
CALLS = 7
SEEDS = range(20)
HEAVY = ("torch", "transformers", "deepspeed", "datasets")


def zipf_coverage(rows: int, exponent: float, num_tokens: int) -> Coverage:
    """Counts drawn from a Zipf-Mandelbrot law over all but 256 rows."""
    rng = np.random.default_rng(0)
    weights = (np.arange(1, rows - 255) + 2.7) ** -exponent
    counts = np.zeros(rows, dtype=np.int64)
    counts[: rows - 256] = rng.permutation(rng.multinomial(num_tokens, weights / weights.sum()))
    return Coverage(
        counts=counts,
        heldout_counts=rng.binomial(counts, 0.05).astype(np.int64),
        target_vocab_size=rows,
        tokenizer_length=rows - 256,
        tokenizer_fingerprint="zipf",
        data_fingerprint="zipf",
        stop_ids=(rows - 257,),
    )


def least(call: Callable[[], object], clock: Callable[[], float], calls: int = CALLS) -> float:
    """The shortest of several calls [s]."""
    seconds = []
    for _ in range(calls):
        start = clock()
        call()
        seconds.append(clock() - start)
    return min(seconds)


def command(folder: Path) -> dict[str, Any]:
    """Wall time of the whole command and what it imported."""
    run = Run(folder)
    zipf_coverage(CONFIG["vocab_size"], 1.1, 3_000_000).save(run.coverage)
    write_json(run.target_config, CONFIG)
    arguments = ["search", "--run", str(folder), "--json"]
    script = (
        "import json, sys\n"
        "from vtrim.cli.main import main\n"
        f"try: main({arguments!r})\n"
        f"except SystemExit: sys.exit(str([m for m in {HEAVY!r} if m in sys.modules]))\n"
    )
    vtrim = [sys.executable, "-c", script]
    imported = subprocess.run(vtrim, capture_output=True, text=True, check=False)  # noqa: S603
    entry = [sys.executable, "-m", "vtrim", *arguments]

    imports = [sys.executable, "-c", "import optuna, safetensors.numpy, typer, rich.progress"]

    def call(line: list[str]) -> None:
        subprocess.run(line, check=True, capture_output=True)  # noqa: S603

    return {
        "wall_s": round(least(lambda: call(entry), time.perf_counter), 3),
        "cpu_s": round(least(lambda: call(entry), _children_cpu), 3),
        "bare_imports_cpu_s": round(least(lambda: call(imports), _children_cpu), 3),
        "heavy_imports": imported.stderr.strip(),
    }


def _children_cpu() -> float:
    """CPU time of the processes that ended, which other work on the machine hardly moves [s]."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def optimum() -> dict[str, float]:
    """CPU time of the exact optimum, from counts to k and from a ready curve to k [ms]."""
    coverage = zipf_coverage(262_144, 1.3, 3_000_000)
    shape = DraftShape.from_target_config({**CONFIG, "vocab_size": 262_144})
    settings = parse_settings(preset="paper")
    objective = build_objective(coverage, shape, settings)
    whole = least(
        lambda: build_objective(coverage, shape, settings).optimum(), time.process_time, 50
    )
    seen = coverage.counts[coverage.counts > 0]
    sort = least(lambda: np.argsort(-seen, kind="stable"), time.process_time, 50)
    return {
        "distinct": coverage.distinct,
        "stable_argsort_ms": round(sort * 1e3, 2),
        "counts_to_k_ms": round(whole * 1e3, 2),
        "curve_to_k_ms": round(least(objective.optimum, time.process_time, 50) * 1e3, 3),
    }


def regret(exponent: float, num_tokens: int, alpha: str, cmin: str) -> dict[str, Any]:
    """TPE against the optimum over many seeds, 100 trials each."""
    settings = parse_settings(alpha=alpha, cmin=cmin)
    shape = DraftShape.from_target_config(CONFIG)
    coverage = zipf_coverage(CONFIG["vocab_size"], exponent, num_tokens)
    objective = build_objective(coverage, shape, settings)
    best = objective.utility(objective.optimum())
    lost, seconds = [], []
    for seed in (settings.seed, *SEEDS):
        start = time.process_time()
        trials = tpe_trials(objective, num_trials=settings.num_trials, seed=seed)
        seconds.append(time.process_time() - start)
        lost.append(float(best - objective.utility(best_trial(trials).point.k)))
    return {
        "exponent": exponent,
        "tokens": num_tokens,
        "distinct": coverage.distinct,
        "alpha": alpha,
        "cmin": cmin,
        "k": objective.optimum(),
        "floor_binds": objective.optimum() > objective.optimum(floor=False),
        "regret_seed_42": float(f"{lost[0]:.1e}"),
        "regret_worst_seed": float(f"{max(lost):.1e}"),
        "tpe_cpu_s": round(min(seconds), 3),
    }


def main() -> None:
    """Measures, prints and writes the last result."""
    with tempfile.TemporaryDirectory() as folder:
        result: dict[str, Any] = {"command": command(Path(folder)), "optimum": optimum()}
    result["regret"] = [
        regret(*case)
        for case in (
            (1.1, 3_000_000, "0.6", "0.95"),
            (1.1, 3_000_000, "0.5", "0"),
            (1.3, 3_000_000, "0.6", "0.95"),
            (1.3, 3_000_000, "0.5", "0"),
            (1.5, 10_000, "0.6", "0.95"),
        )
    ]
    text = json.dumps(result, indent=1)
    Path(__file__).with_name("last_result.json").write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
