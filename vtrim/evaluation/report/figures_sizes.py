"""Figures over the size of the vocabulary: coverage, utility, texts, first misses."""

from __future__ import annotations

from typing import Any

from vtrim.evaluation.report.explorer import Explorer
from vtrim.evaluation.report.figures import (
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Figure,
    line,
    log_sizes,
    shares,
)
from vtrim.evaluation.report.rules import escaped

HOVER = "k %{x:,}: %{y:.2%}<extra>%{fullData.name}</extra>"
MAX_DOMAINS = 12  # lines that can be told apart


def coverage_figure(
    curve: dict[str, list[Any]], search: dict[str, Any] | None, sizes: Explorer | None
) -> Figure:
    """Share of reply tokens covered at each size: all rows, and held-out rows never counted."""
    hover = HOVER
    data = _interval(sizes) if sizes and "low" in sizes else []
    data.append(line(curve["k"], curve["coverage"], "all rows", BLUE, hovertemplate=hover))
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
    """The searched value over size: the exact curve, TPE's trials, the plateau at the optimum."""
    curve, speed = search["curve"], search.get("objective") == "throughput"
    hover = "k %{x:,}: %{y:.5~g}<extra>%{fullData.name}</extra>"
    series, value, title = (
        ("tokens_per_second", "value", "expected tokens/s")
        if speed
        else ("utility", "utility", "utility U(k)")
    )
    data = [line(curve["k"], curve[series], title, BLUE, hovertemplate=hover)]
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
                    "y": [trial[value] for trial in trials],
                    "customdata": [trial["number"] for trial in trials],
                    "marker": {"color": colour, "size": 7, "symbol": symbol, "opacity": 0.65},
                    "hovertemplate": "trial %{customdata}, " + hover,
                }
            )
    data.append(_mark(search["k"], search[value], f"k* = {search['k']:,}", hover))
    low, high = search["plateau"]
    layout = {
        "xaxis": log_sizes(),
        "yaxis": {"title": {"text": title}},
        "shapes": [_band(low, high), _vertical(search["k"])],
    }
    return {"data": data, "layout": layout}


def domains_figure(sizes: Explorer | None) -> Figure | None:
    """Coverage of each text alone; None where there is but one."""
    if sizes is None or len(sizes["domains"]) < 2:
        return None
    data = []
    for index, domain in enumerate(sizes["domains"][:MAX_DOMAINS]):
        style = {"dash": "dot"} if index >= len(COLOURS) else {}
        colour = COLOURS[index % len(COLOURS)]
        name = escaped(domain["name"])
        data.append(
            line(sizes["k"], domain["coverage"], name, colour, hovertemplate=HOVER, line=style)
        )
    return {"data": data, "layout": {"xaxis": log_sizes(), "yaxis": shares("coverage C(k)")}}


def misses_figure(sizes: Explorer | None) -> Figure | None:
    """Share of held-out conversations that meet a missing token early on."""
    if sizes is None or "misses" not in sizes:
        return None
    data = [
        line(
            sizes["k"],
            row["share"],
            f"first {row['within']:,}",
            COLOURS[index % len(COLOURS)],
            hovertemplate=HOVER,
        )
        for index, row in enumerate(sizes["misses"])
    ]
    layout = {"xaxis": log_sizes(), "yaxis": shares("conversations with a miss")}
    return {"data": data, "layout": layout}


def _interval(sizes: Explorer) -> list[dict[str, Any]]:
    """The band between the ends of the held-out interval."""
    quiet = {"hoverinfo": "skip", "legendgroup": "interval"}
    low = line(sizes["k"], sizes["low"], "", ORANGE, showlegend=False, line={"width": 0}, **quiet)
    high = line(sizes["k"], sizes["high"], "95 % interval", ORANGE, line={"width": 0}, **quiet)
    return [low, {**high, "fill": "tonexty", "fillcolor": "rgba(224, 123, 46, 0.22)"}]


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
