"""What all figures share, and FLOPs by component. Plain mappings that plotly.js draws."""

from __future__ import annotations

from collections.abc import Iterable
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
    return {"title": {"text": title}, "tickformat": ".3~%"}


def stacked(labels: list[str], parts: Iterable[tuple[str, str, list[Any]]], title: str) -> Figure:
    """A bar a label. parts: name, colour and the share of each label."""
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": labels,
            "x": values,
            "marker": {"color": colour},
            "hovertemplate": "%{x:.1%}<extra>%{fullData.name}</extra>",
        }
        for name, colour, values in parts
    ]
    layout = {
        "barmode": "stack",
        "xaxis": {**shares(title), "range": [0, 1]},
        "yaxis": {"autorange": "reversed"},
        "height": 170 + 55 * len(labels),
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
