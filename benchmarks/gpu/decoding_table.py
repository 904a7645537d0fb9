"""The rows that decoding.py reports, and their table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from decoding_case import GIB, LEAN, Cell

PHASES = ("draft", "verify", "accept", "other")
PAPER_SHARE = {"naive": 0.0017, "full": 0.0164}
"""Share of the cycle that DropMatch takes on a 70B, batch 1, K 5 (arXiv:2603.03333, Table 4)."""


@dataclass
class Sample:
    """What was seen of one cell.

    times: seconds of each phase, one mapping a round of the whole batch; accepted: drafted tokens
    kept, of each sequence and round; host_syncs: waits for the device in one round; peak: bytes.
    """

    times: list[dict[str, float]] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    host_syncs: int | None = None
    peak: int | None = None

    def milliseconds(self) -> dict[str, float]:
        """Median of each phase over the rounds, and the sum of these medians, the cycle [ms]."""
        middle = {
            phase: 1e3 * median(times.get(phase, 0.0) for times in self.times) for phase in PHASES
        }
        return middle | {"cycle": sum(middle.values())}


def rows(samples: Mapping[Cell, Sample], batch: int, head_ms: Mapping[int, float]) -> list[Any]:
    """One row a measured cell. head_ms: of one head product over K * (L + 1) rows, by L."""
    seen = {cell: sample.milliseconds() for cell, sample in samples.items() if sample.times}
    return [_row(cell, samples[cell], batch, seen, head_ms) for cell in seen]


def _row(
    cell: Cell,
    sample: Sample,
    batch: int,
    seen: Mapping[Cell, Mapping[str, float]],
    head_ms: Mapping[int, float],
) -> dict[str, Any]:
    own, plain, exact = seen[cell], seen.get(cell.baseline), seen.get(cell.exact)
    lean = None if cell.forward == LEAN else seen.get(replace(cell, forward=LEAN))
    row: dict[str, Any] = {
        "batch": batch,
        "drafts": cell.drafts,
        "num_draft_tokens": cell.length,
        "rule": cell.rule,
        "forward": cell.forward,
        "rounds": len(sample.times),
        "accepted_per_round": round(sum(sample.accepted) / len(sample.accepted), 3),
        "cycle_ms": round(own["cycle"], 4),
        **{f"{phase}_ms": round(own[phase], 4) for phase in PHASES},
        "shares": {phase: round(own[phase] / own["cycle"], 4) for phase in PHASES},
        "break_even_acceptance_length": plain and round(own["cycle"] / plain["cycle"], 3),
        "cycle_over_lean": lean and round(own["cycle"] / lean["cycle"], 3),
        "host_syncs_per_round": sample.host_syncs,
        "peak_gib": sample.peak and round(sample.peak / GIB, 2),
    }
    if cell.rule in PAPER_SHARE:
        extra = exact and (own["accept"] - exact["accept"]) / own["cycle"]
        product = head_ms.get(cell.length) if cell.drafts == "chain" else None
        row |= {
            "above_greedy_share": extra if extra is None else round(extra, 4),
            "paper_share": PAPER_SHARE[cell.rule],
            "head_product_ms": product and round(product, 4),
            "accept_over_head_product": product and round(own["accept"] / batch / product, 2),
        }
    return row


def table(pairs: Sequence[Mapping[str, Any]]) -> str:
    """The rows of all pairs as Markdown."""
    heads = (
        "pair", "batch", "drafts", "rule", "forward", "cycle ms", *PHASES, "over greedy",
        "paper", "x plain", "x lean", "kept", "syncs", "peak GiB",
    )  # fmt: skip
    lines = [heads, ("---",) * len(heads)]
    for pair in pairs:
        lines += [_line(pair["name"], row) for row in pair["rows"]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _line(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    length = row["num_draft_tokens"]
    return (
        name,
        str(row["batch"]),
        f"{row['drafts']} {length}" if length else row["drafts"],
        row["rule"],
        row["forward"],
        f"{row['cycle_ms']:.3f}",
        *(f"{row['shares'][phase]:.1%}" for phase in PHASES),
        _or_none(row.get("above_greedy_share"), "{:.2%}"),
        _or_none(row.get("paper_share"), "{:.2%}"),
        _or_none(row["break_even_acceptance_length"], "{:.2f}"),
        _or_none(row["cycle_over_lean"], "{:.2f}"),
        f"{row['accepted_per_round']:.2f}",
        _or_none(row["host_syncs_per_round"], "{}"),
        _or_none(row["peak_gib"], "{:.1f}"),
    )


def _or_none(value: Any, form: str) -> str:
    return "" if value is None else form.format(value)
