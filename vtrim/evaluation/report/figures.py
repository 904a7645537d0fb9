"""Figures of the vocabulary: coverage, utility, FLOPs. Plain mappings that plotly.js draws."""

from __future__ import annotations

from typing import Any

from vtrim.evaluation.report.rules import percent
from vtrim.flops.cost import draft_flops
from vtrim.shape import DraftShape

Figure = dict[str, Any]

# Distinct for colour-blind readers, and legible on a white and on a near-black page.
BLUE, ORANGE, GREEN, PURPLE, RED, GREY = (
    "#3f86e0",
    "#e07b2e",
    "#2a9d76",
    "#9a6ad6",
    "#d4526e",
    "#8b929c",
)
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, GREY)
COMPONENTS = {
    "fc": ("fusion (fc)", GREEN),
    "attention": ("attention", PURPLE),
    "mlp": ("MLP", ORANGE),
    "lm_head": ("LM head", BLUE),
}


def line(x: list[Any], y: list[Any], name: str, colour: str, **more: Any) -> dict[str, Any]:
    """A line trace."""
    style = {"color": colour, "width": 2, **more.pop("line", {})}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "name": name, "line": style, **more}


def log_sizes(title: str = "draft vocabulary size k") -> dict[str, Any]:
    """A logarithmic axis of sizes, with ticks at 1, 2 and 5 times powers of ten."""
    return {"type": "log", "title": {"text": title}, "dtick": "D2", "tickformat": ",~s"}


def shares(title: str) -> dict[str, Any]:
    """An axis of shares."""
    return {"title": {"text": title}, "tickformat": ".0%"}


def coverage_figure(curve: dict[str, list[Any]], search: dict[str, Any] | None) -> Figure:
    """Share of reply tokens covered at each size: all rows, and held-out rows never counted."""
    hover = "k %{x:,}: %{y:.2%}<extra>%{fullData.name}</extra>"
    data = [line(curve["k"], curve["coverage"], "all rows", BLUE, hovertemplate=hover)]
    if any(share is not None for share in curve["heldout_coverage"]):
        heldout = curve["heldout_coverage"]
        style = {"dash": "dash"}
        data.append(
            line(curve["k"], heldout, "held-out rows", ORANGE, hovertemplate=hover, line=style)
        )
    layout: dict[str, Any] = {"xaxis": log_sizes(), "yaxis": shares("coverage C(k)")}
    if search is not None:
        label = f"k* = {search['k']:,}"
        data.append(_mark(search["k"], search["coverage"], label, hover))
        layout["shapes"] = [_vertical(search["k"])]
    return {"data": data, "layout": layout}


def utility_figure(search: dict[str, Any]) -> Figure:
    """Utility over size: the exact curve, TPE's trials, and the plateau near the optimum."""
    curve, hover = search["curve"], "k %{x:,}: U = %{y:.5f}<extra>%{fullData.name}</extra>"
    data = [line(curve["k"], curve["utility"], "U(k)", BLUE, hovertemplate=hover)]
    for feasible, name, colour, symbol in (
        (True, "TPE trial", ORANGE, "circle"),
        (False, "below the floor", GREY, "x"),
    ):
        trials = [t for t in search["trial_log"] if bool(t["feasible"]) is feasible]
        if trials:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": [trial["k"] for trial in trials],
                    "y": [trial["utility"] for trial in trials],
                    "customdata": [trial["number"] for trial in trials],
                    "marker": {"color": colour, "size": 7, "symbol": symbol, "opacity": 0.65},
                    "hovertemplate": "trial %{customdata}, " + hover,
                }
            )
    data.append(_mark(search["k"], search["utility"], f"k* = {search['k']:,}", hover))
    low, high = search["plateau"]
    layout = {
        "xaxis": log_sizes(),
        "yaxis": {"title": {"text": "utility U(k)"}},
        "shapes": [_band(low, high), _vertical(search["k"])],
    }
    return {"data": data, "layout": layout}


def flops_figure(search: dict[str, Any]) -> Figure:
    """FLOPs of one draft token at the full vocabulary and at k*, by component."""
    shape = DraftShape(**search["shape"])
    rows = [(f"full, V = {shape.target_vocab_size:,}", shape.target_vocab_size)]
    rows.append((f"trimmed, k* = {search['k']:,}", search["k"]))
    costs = [draft_flops(shape, size) for _, size in rows]
    data = []
    for key, (name, colour) in COMPONENTS.items():
        values = [cost.components[key] / 1e6 for cost in costs]
        wide = [value > 0.08 * costs[0].total / 1e6 for value in values]
        parts = [cost.components[key] / cost.total for cost in costs]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": [label for label, _ in rows],
                "x": values,
                "customdata": parts,
                "text": [percent(p, 0) if w else "" for p, w in zip(parts, wide, strict=True)],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "textangle": 0,
                "marker": {"color": colour},
                "hovertemplate": "%{x:,.2f} MFLOPs, %{customdata:.1%}"
                "<extra>%{fullData.name}</extra>",
            }
        )
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": "MFLOPs per draft token"}},
        "yaxis": {"autorange": "reversed"},
        "height": 280,
    }
    return {"data": data, "layout": layout}


def _mark(x: Any, y: Any, label: str, hover: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [x],
        "y": [y],
        "name": label,
        "marker": {"color": RED, "size": 11, "symbol": "diamond"},
        "hovertemplate": hover,
    }


def _vertical(x: Any) -> dict[str, Any]:
    return {
        "type": "line",
        "x0": x,
        "x1": x,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"color": RED, "width": 1, "dash": "dot"},
    }


def _band(low: Any, high: Any) -> dict[str, Any]:
    return {
        "type": "rect",
        "x0": low,
        "x1": high,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "fillcolor": GREEN,
        "opacity": 0.15,
        "line": {"width": 0},
        "layer": "below",
    }
