"""What ``vtrim search`` says beside its table: held-out coverage, shards, an eval of the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vtrim.artifacts import Run, fingerprint_json, read_object
from vtrim.cli import common
from vtrim.errors import InputError, VtrimError
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.search import SearchResult
from vtrim.trimming.throughput import ThroughputObjective, acceptance_of

FEW_HELD_OUT = 30  # conversations: with fewer, one of them moves the figure by percents


def coverage_file(run: Run) -> Path:
    """The run's counts.

    Raises:
        InputError: there are none; names the shards still to count where some are there.
    """
    found = sorted(run.root.glob("coverage.*-of-*.npz"))
    if run.coverage.exists() or not found:
        return run.require(run.coverage, "coverage")
    count = found[0].stem.rpartition("-of-")[2]
    missing = [
        f"{index}/{count}"
        for index in range(1, int(count) + 1 if count.isdecimal() else 1)
        if not (run.root / f"coverage.{index}-of-{count}.npz").exists()
    ]
    if not missing:
        raise InputError(
            f"{run.coverage}: no such file, only its shards ({found[0].name} ...). Run `vtrim "
            f"coverage --shard 1/{count}` again: the last one to end writes the sum."
        )
    raise InputError(
        f"{run.coverage}: not counted to the end: shard {', '.join(missing[:5])}"
        f"{' ...' if len(missing) > 5 else ''} is missing. Run `vtrim coverage` with --shard "
        f"{missing[0]}."
    )


def warn_of_heldout(result: SearchResult, coverage: Coverage) -> None:
    """Warns of a floor that does not hold on text never counted, and of a figure of few rows."""
    heldout = result.curve.heldout_coverage(result.chosen.k)
    if heldout is None:
        return
    rows = coverage.rows_heldout
    few = ""
    if 0 < rows < FEW_HELD_OUT:
        few = f"only {rows} conversations held out: read this figure with care"
    if heldout >= result.settings.cmin:
        if few:
            common.warn(f"held-out coverage {100 * heldout:.1f} %: {few}.")
        return
    needed = result.curve.smallest_heldout_k(result.settings.cmin)
    common.warn(
        f"on held-out conversations coverage is {100 * heldout:.1f} %, below --cmin "
        f"{100 * float(result.settings.cmin):g} %: the floor holds for the counted ones only "
        f"({'no k holds' if needed is None else f'k {needed:,} would hold'} it there)."
        f"{f' {few.capitalize()}.' if few else ''}"
    )


def note_eval(run: Run, result: SearchResult, config: Mapping[str, Any]) -> None:
    """Says which a0 the newest eval of the run under an exact rule speaks for."""
    objective = result.objective
    if not isinstance(objective, ThroughputObjective):
        return
    files = sorted(run.eval.glob("*.json"), key=lambda file: file.stat().st_mtime)
    for file in reversed(files):
        try:
            measured = _measured(read_object(file), fingerprint_json(config))
        except VtrimError as error:
            common.note(f"eval left out: {error}")
            continue
        if measured is None:
            continue
        length, drafted, k = measured
        share = result.curve.heldout_coverage(k) or result.curve.coverage(k)
        a0 = min(1.0, acceptance_of(length, drafted) / share) if share else 0.0
        if a0 < 0.005:
            return
        same = abs(a0 - objective.a0) < 0.005
        common.note(
            f"{file}: {length:.2f} tokens a round with {drafted} drafted and k {k:,}, so a0 about "
            f"{a0:.2f}{', as here' if same else f'; search again with --a0 {a0:.2f}'}"
        )
        return


def _measured(found: Mapping[str, Any], config: str) -> tuple[float, int, int] | None:
    """Tokens a round under the exact rule, tokens drafted, the draft's k; None where not told."""
    exact: Any = found if found.get("lossless") else found.get("exact")
    try:
        provenance = found["provenance"]
        if provenance["target_config_fingerprint"] != config:
            return None
        length = float(exact["acceptance_length"])
        drafted, k = int(found["num_draft_tokens"]), int(provenance["draft_vocab_size"])
    except (KeyError, TypeError, ValueError):
        return None
    return (length, drafted, k) if drafted > 0 and k > 0 else None
