"""docs/results/training.md from the rows that study.py measured (study.json)."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]

GROUPS = [
    ("seeds", "the recipe", ["base42", "base1", "base2"]),
    ("seeds", "EAGLE parity", ["eagle42", "eagle1", "eagle2"]),
    ("seeds", "full vocabulary", ["full42", "full1", "full2"]),
]
PARTS = [
    ("Optimiser and rate", ["adam1", "adam3", "muon02", "base42", "muon08", "muon16"]),
    ("Head at the start", ["headrandom", "frozen"]),
    ("Unroll steps", ["ttt1", "ttt2", "ttt5"]),
    ("Vocabulary", ["k2048", "k8192", "full42"]),
    ("Loss", ["lklambda", "lkalpha", "keep"]),
    ("Sequences a step", ["mb4", "mb16"]),
    ("Data", ["tok80", "t0", "t0more"]),
]


def seeds(rows: dict[str, Row]) -> list[str]:
    """The table of three seeds."""
    lines = [
        "| | k | decoded acceptance length, 3 seeds | mean | held-out joint prefix | tokens seen |",
        "|---|---|---|---|---|---|",
    ]
    for _, title, names in GROUPS:
        found = [rows[name] for name in names if name in rows]
        if not found:
            continue
        taus = [row["tau"] for row in found]
        prefix = statistics.mean(row["joint_prefix"] for row in found)
        tokens = round(statistics.mean(row["tokens"] for row in found) / 1000)
        lines.append(
            f"| {title} | {found[0]['k']:,} | {', '.join(f'{t:.3f}' for t in taus)} "
            f"| **{statistics.mean(taus):.3f}** | {prefix:.3f} | {tokens} K |"
        )
    return lines


def changes(rows: dict[str, Row]) -> list[str]:
    """One change of the recipe a row."""
    lines = [
        "| | change | decoded length | by position | joint prefix | steps | tokens seen |",
        "|---|---|---|---|---|---|---|",
    ]
    for part, names in PARTS:
        for name in names:
            if name not in rows:
                continue
            row = rows[name]
            change = " ".join(row["changes"]) or "none (the recipe)"
            if name.startswith("t0"):
                change = f"greedy replies {change}".strip()
            positions = ", ".join(f"{p:.2f}" for p in row["by_position"])
            lines.append(
                f"| {part} | {change} | {row['tau']:.3f} | {positions} | {row['joint_prefix']:.3f} "
                f"| {row['steps']} | {row['tokens'] // 1000} K |"
            )
            part = ""
    return lines


def main() -> None:
    """Fills the tables of the page between their marks."""
    rows = {row["name"]: row for row in json.loads((HERE / "study.json").read_text())}
    page = HERE.parents[1] / "docs" / "results" / "training.md"
    text = page.read_text(encoding="utf-8")
    for mark, lines in (("seeds", seeds(rows)), ("changes", changes(rows))):
        before, rest = text.split(f"<!-- {mark} -->", 1)
        _, after = rest.split(f"<!-- end of {mark} -->", 1)
        table = "\n".join(lines)
        text = f"{before}<!-- {mark} -->\n{table}\n<!-- end of {mark} -->{after}"
    page.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{page.name}: {len(rows)} rows\n")


if __name__ == "__main__":
    main()
