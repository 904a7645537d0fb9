"""Tables that defend the chosen size: named points of the front, k* over alpha and over a0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vtrim.evaluation.report.rules import UNKNOWN, decimal, percent


@dataclass(frozen=True)
class Table:
    """A table whose rows each stand for one size, which the slider can go to."""

    title: str
    text: str
    columns: tuple[str, ...]
    rows: list[tuple[int, list[str]]]


def reason_tables(search: Mapping[str, Any] | None) -> list[Table]:
    """What the search kept besides its choice; nothing for runs of before it kept any."""
    return list(_tables(search)) if search else []


def _tables(search: Mapping[str, Any]) -> Iterator[Table]:
    pareto, alphas = search.get("pareto"), search.get("alpha_curve")
    if pareto:
        yield Table(
            "Named sizes",
            "Each row more covers more and costs more, so no size below "
            f"{pareto['front_end']:,} is worse than another in both; a few have names.",
            ("size", "k", "C", "C held out", "R", *_value_column(search)),
            [(int(row["k"]), _point_cells(row, search)) for row in pareto["points"]],
        )
    if alphas:
        yield Table(
            "If coverage weighed more or less",
            _alpha_text(search, alphas),
            ("alpha", "k*", "C", "R", "decided by"),
            [(int(row["k"]), _alpha_cells(row)) for row in alphas["rows"]],
        )
    speed = search.get("throughput")
    if speed:
        yield Table(
            "If the draft were accepted more or less",
            f"a0: chance that a drafted token is accepted with a full vocabulary; {speed['a0']:g} "
            "was assumed.",
            ("a0", "k*", "speed-up over plain"),
            [
                (int(row["k"]), [f"{row['a0']:g}", decimal(row["speedup_over_plain"])])
                for row in speed["a0_curve"]
            ],
        )


def _value_column(search: Mapping[str, Any]) -> tuple[str, ...]:
    return ("tokens/s",) if search.get("throughput") else ("U",)


def _point_cells(row: Mapping[str, Any], search: Mapping[str, Any]) -> list[str]:
    speed = bool(search.get("throughput"))
    value = decimal(row["value"], 1) if speed else decimal(row["utility"], 4)
    shares = [percent(row["coverage"], 2), percent(row.get("heldout_coverage"), 2)]
    return [str(row["name"]), *shares, percent(row["flops_reduction"]), value]


def _alpha_cells(row: Mapping[str, Any]) -> list[str]:
    shares = [percent(row["coverage"], 2), percent(row["flops_reduction"])]
    return [f"{row['alpha']:g}", *shares, "floor" if row["floor_binds"] else "alpha"]


def _alpha_text(search: Mapping[str, Any], alphas: Mapping[str, Any]) -> str:
    """Over which weights the choice holds."""
    floor = search["cmin"]
    held = f"Coverage at least {floor:g} throughout." if floor else "Without a floor."
    if not alphas.get("interval"):
        return held
    low, high = (decimal(bound) for bound in alphas["interval"])
    margin = alphas.get("tolerance", UNKNOWN)
    return (
        f"{held} The chosen k = {search['k']:,} is within {margin} of the best utility for every "
        f"alpha from {low} to {high}."
    )
