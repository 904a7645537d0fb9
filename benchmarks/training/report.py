"""The numbers of the benchmark as ratios, and as the table of the README."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from case import Case

BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"


def summary(measured: list[dict[str, Any]], small: int, full: int) -> dict[str, Any]:
    """The ratios that are asked for."""
    of = {Case(**{f: m[f] for f in Case.__dataclass_fields__}).name: m for m in measured}

    def ratio(one: Case, other: Case, what: str = "cpu_seconds") -> float | None:
        pair = of.get(one.name), of.get(other.name)
        return round(pair[0][what] / pair[1][what], 3) if pair[0] and pair[1] else None

    out: dict[str, Any] = {}
    for k in (small, full):
        ours = Case("vtrim", k)
        for peer in ("specforge", "eagle"):
            out[f"time against {peer}, k={k}"] = ratio(ours, Case(peer, k))
            out[f"memory against {peer}, k={k}"] = ratio(ours, Case(peer, k), "peak_mb")
        out[f"bf16 against fp32, k={k}"] = ratio(Case("vtrim", k, "bf16"), ours)
    everything = Case("vtrim", small, rows="all")
    out["time against specforge, every row trained"] = ratio(everything, Case("specforge", small))
    out["T 1024 against 512, fp32"] = ratio(Case("vtrim", small, length=1024), Case("vtrim", small))
    for dtype in ("fp32", "bf16"):
        out[f"k={full} against k={small}, {dtype}"] = ratio(
            Case("vtrim", full, dtype), Case("vtrim", small, dtype)
        )
    return out


def table(measured: list[dict[str, Any]], ratios: dict[str, Any]) -> str:
    """Markdown: every case, then the ratios."""
    lines = ["| trainer | k | dtype | T | rows trained | CPU s a step | peak MB |"]
    lines.append("|---|---|---|---|---|---|---|")
    lines += [
        f"| {m['trainer']} | {m['k']:,} | {m['dtype']} | {m['length']} | {m['rows']} "
        f"| {m['cpu_seconds']:.2f} | {m['peak_mb']:,} |"
        for m in measured
    ]
    lines += ["", "| ratio | |", "|---|---|"]
    lines += [f"| {name} | {value:.2f} |" for name, value in ratios.items() if value is not None]
    return "\n".join(lines) + "\n"


def put_table(page: Path, text: str) -> None:
    """Replaces the part of the page between the marks."""
    before, rest = page.read_text().split(BEGIN)
    page.write_text(before + BEGIN + text + END + rest.split(END)[1])
