"""Writes docs/results/training.md from the rows that benchmarks/training/study.py printed.

python benchmarks/results/training_page.py [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import training_text as text
from tabular import number, page_of, table

HERE = Path(__file__).resolve().parent
RECORD = HERE / "training.json"
Row = dict[str, Any]

SEEDS = {
    "the recipe": ["base42", "base1", "base2"],
    "EAGLE parity": ["eagle42", "eagle1", "eagle2"],
    "full vocabulary": ["full42", "full1", "full2"],
}
PARTS = {
    "Optimiser and rate": ["adam1", "adam3", "muon02", "base42", "muon08", "muon16"],
    "Head at the start": ["headrandom", "frozen"],
    "Unroll steps": ["ttt1", "ttt2", "ttt5"],
    "Vocabulary": ["k2048", "k8192", "full42"],
    "Loss": ["lklambda"],
    "Sequences a step": ["mb4"],
    "Data": ["tok80", "t0", "t0more"],
}
STATES_SECONDS = 258  # of one core, when the store was filled
SKETCH_TIME = ["must", "must2"]
MORE_TIME = {
    "aim": "157,000 tokens, temperature 0",
    "aim2": "the same",
    "hour": "597,000 tokens, 7 in 10 of them at temperature 0",
}


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    page_file = HERE.parents[1] / "docs" / "results" / "training.md"
    parser.add_argument("--out", type=Path, default=page_file)
    options = parser.parse_args()
    rows = {row["name"]: row for row in json.loads(RECORD.read_text(encoding="utf-8"))}
    options.out.write_text(page(rows), encoding="utf-8")
    sys.stderr.write(f"{options.out}\n")


def page(rows: Mapping[str, Row]) -> str:
    """The whole page as Markdown; its tables and its comparisons come from the rows."""
    tau = {name: number(row["tau"]) for name, row in rows.items()}
    parts = [
        text.INTRODUCTION,
        seeds(rows),
        text.CHANGES,
        changes(rows),
        text.lessons(tau),
        text.MONEY,
        sketch_time(rows),
        text.PASSED,
        more_time(rows),
        text.REPRODUCE,
    ]
    return page_of(parts)


def seeds(rows: Mapping[str, Row]) -> str:
    """The recipe, parity and the full vocabulary with three seeds each."""
    columns = ["", "k", "decoded acceptance length, 3 seeds", "mean", "held-out joint prefix"]
    cells = []
    for title, names in SEEDS.items():
        found = [rows[name] for name in names]
        lengths = [row["tau"] for row in found]
        prefix = statistics.mean(row["joint_prefix"] for row in found)
        tokens = round(statistics.mean(row["tokens"] for row in found) / 1000)
        listed = ", ".join(number(length, 3) for length in lengths)
        mean = f"**{statistics.mean(lengths):.3f}**"
        cells.append([title, f"{found[0]['k']:,}", listed, mean, number(prefix, 3), f"{tokens} K"])
    return table([*columns, "tokens seen"], cells)


def changes(rows: Mapping[str, Row]) -> str:
    """One change of the recipe a row."""
    columns = ["", "change", "decoded length", "by position", "joint prefix", "steps"]
    cells = []
    for part, names in PARTS.items():
        for place, name in enumerate(names):
            row = rows[name]
            change = " ".join(row["changes"]) or "none (the recipe)"
            if name.startswith("t0"):
                change = f"greedy replies {change}"
            counts = [str(row["steps"]), f"{row['tokens'] // 1000} K"]
            lengths = [number(row["tau"], 3), positions(row, 2), number(row["joint_prefix"], 3)]
            cells.append(["" if place else part, change, *lengths, *counts])
    return table([*columns, "tokens seen"], cells, words=2)


def sketch_time(rows: Mapping[str, Row]) -> str:
    """Drafts that took the sketch's time."""
    columns = ["k", "target states", "training", "steps", "decoded acceptance length"]
    cells = []
    for name in SKETCH_TIME:
        row = rows[name]
        times = [f"{STATES_SECONDS} s", f"{row['cpu_seconds']:.0f} s"]
        length = number(row["tau"], 3)
        cells.append([f"{row['k']:,}", *times, str(row["steps"]), length, positions(row, 3)])
    return table([*columns, "by position"], cells)


def more_time(rows: Mapping[str, Row]) -> str:
    """Drafts of greedy replies, and of an hour."""
    columns = ["replies", "k", "Muon", "training", "tokens seen", "decoded acceptance length"]
    cells = []
    for name, replies in MORE_TIME.items():
        row = rows[name]
        rate = next(
            (c.partition("=")[2] for c in row["changes"] if c.startswith("muon_lr")), "0.04"
        )
        seen = row["tokens"]
        tokens = f"{seen / 1e6:.1f} M" if seen > 1e6 else f"{round(seen, -3):,}"
        times = [f"{row['cpu_seconds']:,.0f} s", tokens]
        lengths = [number(row["tau"], 3), positions(row, 3)]
        cells.append([replies, f"{row['k']:,}", rate, *times, *lengths])
    return table([*columns, "by position"], cells)


def positions(row: Row, digits: int) -> str:
    """Acceptance by position."""
    shares: Sequence[float] = row["by_position"]
    return ", ".join(number(share, digits) for share in shares)


if __name__ == "__main__":
    main()
