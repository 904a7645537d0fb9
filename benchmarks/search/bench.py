"""Time and regret of ``vtrim search``.

    OMP_NUM_THREADS=1 python benchmarks/search/bench.py

The counts are drawn from Zipf-Mandelbrot laws, so that nothing has to be downloaded. The command
is timed as a user calls it, in a new process (the least of several calls); the optimum in CPU time,
from counts to k; the search of the paper's script beside vtrim's, in one process. Writes
last_result.json beside itself.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from vtrim.artifacts import Run, write_json
from vtrim.flops.cost import draft_flops
from vtrim.flops.roofline import find_gpu, roofline_times
from vtrim.shape import DraftShape
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.journal import open_storage
from vtrim.trimming.objective import Objective
from vtrim.trimming.search import build_objective, search
from vtrim.trimming.settings import OBJECTIVES, parse_settings
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
CALLS = 5
ROWS = (128_256, 262_144)  # heads of Llama 3.1 and of Gemma 3
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


def command(folder: Path, rows: int) -> dict[str, Any]:
    """Time of the whole command, without a journal from before, and what it imported."""
    run = Run(folder)
    zipf_coverage(rows, 1.3, 3_000_000).save(run.coverage)
    write_json(run.target_config, {**CONFIG, "vocab_size": rows})
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

    def call(line: list[str], *, fresh: bool = True) -> None:
        if fresh:
            run.search_journal.unlink(missing_ok=True)
        subprocess.run(line, check=True, capture_output=True)  # noqa: S603

    return {
        "rows": rows,
        "wall_s": round(least(lambda: call(entry), time.perf_counter), 3),
        "cpu_s": round(least(lambda: call(entry), _children_cpu), 3),
        "again_cpu_s": round(least(lambda: call(entry, fresh=False), _children_cpu), 3),
        "bare_imports_cpu_s": round(least(lambda: call(imports), _children_cpu), 3),
        "heavy_imports": imported.stderr.strip().splitlines()[-1],
    }


def _children_cpu() -> float:
    """CPU time of the processes that ended, which other work on the machine hardly moves [s]."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def optimum(rows: int, name: str) -> dict[str, Any]:
    """CPU time of an exact optimum, from counts to k and from a ready curve to k [ms].

    Ready: the counts are sorted and summed up, every size still has to be looked at.
    """
    coverage = zipf_coverage(rows, 1.3, 3_000_000)
    shape = DraftShape.from_target_config({**CONFIG, "vocab_size": rows})
    _, gpu = find_gpu("H100 SXM")
    times = roofline_times(shape, gpu, "H100 SXM", num_draft_tokens=3)
    settings = parse_settings(objective=name, cmin="0.9", kmax=rows - 256)

    def ready() -> Objective:
        objective = build_objective(coverage, shape, settings, times)
        objective.curve.running_covered.sum()
        return objective

    curves = [ready() for _ in range(50)]  # a throughput objective remembers its speeds
    return {
        "rows": rows,
        "objective": name,
        "distinct": coverage.distinct,
        "k": ready().optimum(),
        "counts_to_k_ms": round(least(lambda: ready().optimum(), time.process_time, 30) * 1e3, 2),
        "curve_to_k_ms": round(
            least(lambda: curves.pop().optimum(), time.process_time, 50) * 1e3, 3
        ),
    }


def sort(rows: int) -> float:
    """CPU time of one stable argsort of the same counts, for scale [ms]."""
    counts = zipf_coverage(rows, 1.3, 3_000_000).counts
    seen = counts[counts > 0]
    return round(least(lambda: np.argsort(-seen, kind="stable"), time.process_time, 50) * 1e3, 2)


def peer_search(counts: Counter[int], num_trials: int) -> int:
    """The search as the paper's reference script works, in our own words; returns its k.

    The coverage of each trial is summed up in Python over the most frequent ids, a size below the
    floor is worth -1, and Optuna's defaults are kept.
    """
    full = draft_flops(DraftShape.from_target_config(CONFIG)).total

    def utility(trial: optuna.Trial) -> float:
        k = trial.suggest_int("k", 50, 50_000)
        covered = sum(count for _, count in counts.most_common(k)) / sum(counts.values())
        saved = 2 * CONFIG["hidden_size"] * (CONFIG["vocab_size"] - k) / full
        return 0.6 * covered + 0.4 * saved if covered >= 0.9 else -1.0

    sampler = optuna.samplers.TPESampler(seed=42)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(utility, n_trials=num_trials)
    return int(study.best_params["k"])


def against_the_papers_script() -> dict[str, Any]:
    """CPU time and k of the same search, vtrim's way and the paper's, alternating [s]."""
    coverage = zipf_coverage(CONFIG["vocab_size"], 1.3, 3_000_000)
    shape = DraftShape.from_target_config(CONFIG)
    settings = parse_settings(alpha="0.6", cmin="0.9")
    counts = Counter({int(i): int(coverage.counts[i]) for i in np.flatnonzero(coverage.counts)})
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    result: dict[str, Any] = {}
    for trials in (30, 100):
        asked = replace(settings, num_trials=trials)
        ours = least(partial(search, coverage, shape, asked), time.process_time, 3)
        theirs = least(partial(peer_search, counts, trials), time.process_time, 3)
        result[str(trials)] = {
            "vtrim_s": round(ours, 3),
            "papers_way_s": round(theirs, 3),
            "ratio": round(theirs / ours, 1),
            "k_vtrim": search(coverage, shape, asked).tpe.k,
            "k_papers_way": peer_search(counts, trials),
            "k_exact": search(coverage, shape, asked).exact.k,
        }
    return result


def storages(folder: Path) -> dict[str, float]:
    """Wall time of 100 trials, by where they are kept [s]."""
    objective = build_objective(
        zipf_coverage(CONFIG["vocab_size"], 1.3, 3_000_000),
        DraftShape.from_target_config(CONFIG),
        parse_settings(),
    )
    names = count()

    def kept(name: str) -> None:
        location = {
            "memory": None,
            "journal": folder / f"{next(names)}.journal",
            "sqlite": f"sqlite:///{folder}/{next(names)}.db",
        }[name]
        with open_storage(location) as storage:
            tpe_trials(objective, num_trials=100, seed=42, storage=storage.backend)

    def optunas_journal() -> None:
        backend = optuna.storages.journal.JournalFileBackend(str(folder / f"{next(names)}.log"))
        storage = optuna.storages.JournalStorage(backend)
        tpe_trials(objective, num_trials=100, seed=42, storage=storage)

    calls = {name: partial(kept, name) for name in ("memory", "journal", "sqlite")}
    calls["journal, synced and locked for each record (Optuna's own)"] = optunas_journal
    return {name: round(least(call, time.perf_counter, 3), 3) for name, call in calls.items()}


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
        log = tpe_trials(objective, num_trials=settings.num_trials, seed=seed)
        seconds.append(time.process_time() - start)
        lost.append(float(best - objective.utility(best_trial(log.trials).point.k)))
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
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        result["command"] = [command(Path(folder) / str(rows), rows) for rows in ROWS]
        result["storages_wall_s"] = storages(Path(folder))
    result["stable_argsort_ms"] = {str(rows): sort(rows) for rows in ROWS}
    result["optimum"] = [optimum(rows, name) for rows in ROWS for name in OBJECTIVES]
    result["papers_script"] = against_the_papers_script()
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
