"""The cost model beside measured times of draft steps, as a figure and a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtrim.evaluation.report.figures import BLUE, GREEN, Figure, line, log_sizes, shares
from vtrim.evaluation.report.parts import Grid
from vtrim.evaluation.report.rules import decimal, percent

COST_TEXT = (
    "A draft step with heads of several sizes, each against the largest: FLOPs that the model "
    "counts as saved, and time that was saved."
)


def cost_figure(times: Mapping[str, Any] | None) -> Figure | None:
    """FLOPs saved and time saved over size; None where no steps were timed."""
    rows = _rows(times)
    if not rows:
        return None
    sizes = [row["k"] for row in rows]
    hover = "k %{x:,}: %{y:.1%}<extra>%{fullData.name}</extra>"
    counted = [row["predicted_reduction"] for row in rows]
    saved = [row["measured_reduction"] for row in rows]
    points = {"mode": "markers", "marker": {"color": GREEN, "size": 9}}
    data = [
        line(sizes, counted, "FLOPs saved (model)", BLUE, hovertemplate=hover),
        line(sizes, saved, "time saved (measured)", GREEN, hovertemplate=hover, **points),
    ]
    return {"data": data, "layout": {"xaxis": log_sizes(), "yaxis": shares("saved of a step")}}


def cost_grid(times: Mapping[str, Any] | None) -> Grid | None:
    """The same with the times themselves."""
    rows = _rows(times)
    if not rows or times is None:
        return None
    machine = (
        f"{times.get('device_name', '?')}, {times.get('dtype', '?')}, {times.get('threads', '?')} "
        f"threads, {times.get('context', '?')} cached tokens"
    )
    return Grid(
        name="steps",
        title="Draft steps, counted and timed",
        text=f"`vtrim flops --measure` on {machine}. Times are medians with quartiles.",
        columns=("k", "step [ms]", "quartiles [ms]", "time saved", "FLOPs saved"),
        rows=[
            [
                f"{row['k']:,}",
                _milli(row["median_s"]),
                f"{_milli(row['q25_s'])} to {_milli(row['q75_s'])}",
                percent(row["measured_reduction"]),
                percent(row["predicted_reduction"]),
            ]
            for row in rows
        ],
    )


def _rows(times: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """The timed sizes that hold all numbers."""
    needed = ("k", "median_s", "q25_s", "q75_s", "measured_reduction", "predicted_reduction")
    rows = (times or {}).get("draft") or ()
    return [row for row in rows if all(isinstance(row.get(key), int | float) for key in needed)]


def _milli(seconds: float) -> str:
    return decimal(1000 * seconds, 2)
