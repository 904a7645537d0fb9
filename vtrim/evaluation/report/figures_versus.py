"""Figures of several runs: one line or bar a run, a colour each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtrim.evaluation.report.facts import Facts
from vtrim.evaluation.report.figures import COLOURS, GREEN, GREY, RED, Figure, line, log_sizes
from vtrim.evaluation.report.figures import shares as axis_of_shares
from vtrim.evaluation.report.figures_run import of_kind
from vtrim.evaluation.report.figures_sizes import HOVER
from vtrim.evaluation.report.rules import escaped
from vtrim.evaluation.report.tables import headline_rules

Named = Mapping[str, Facts]


def coverage_figure(named: Named) -> Figure | None:
    """Coverage over size of each run's own text, with the size that it chose."""
    data: list[dict[str, Any]] = []
    for index, (label, facts) in enumerate(named.items()):
        if facts.curve is None:
            continue
        colour = _colour(index)
        data.append(_curve(facts.curve, "coverage", label, colour, facts))
    return {"data": data, "layout": _sizes(axis_of_shares("coverage C(k)"))} if data else None


def utility_figure(named: Named) -> Figure | None:
    """Utility over size of each run that searched for it."""
    data = [
        _curve(facts.curve, "utility", label, _colour(index), facts)
        for index, (label, facts) in enumerate(named.items())
        if facts.curve is not None and "utility" in facts.curve
    ]
    return {"data": data, "layout": _sizes({"title": {"text": "utility U(k)"}})} if data else None


def heldout_figure(named: Named, field: str, title: str) -> Figure | None:
    """A number of the held-out checks over the steps of training."""
    data = []
    for index, (label, facts) in enumerate(named.items()):
        checks = [one for one in of_kind(facts.metrics, "heldout") if one.get(field) is not None]
        if checks:
            steps, values = [one.get("step") for one in checks], [one[field] for one in checks]
            data.append(line(steps, values, escaped(label), _colour(index), mode="lines+markers"))
    xaxis = {"title": {"text": "optimiser step"}, "rangemode": "tozero"}
    layout = {"xaxis": xaxis, "yaxis": {"title": {"text": title}}}
    return {"data": data, "layout": layout} if data else None


def speed_figure(named: Named) -> Figure | None:
    """Plain, exact and lossy decoding of each run's main result, the runs next to each other."""
    kinds: dict[str, dict[str, float]] = {"plain": {}, "exact": {}, "lossy": {}}
    for label, facts in named.items():
        exact, lossy = headline_rules(facts)
        main = exact or lossy
        plain = facts.evals[main.run].get("plain_tokens_per_second") if main else None
        for kind, speed in (
            ("plain", plain),
            ("exact", exact.numbers.get("tokens_per_second") if exact else None),
            ("lossy", lossy.numbers.get("tokens_per_second") if lossy else None),
        ):
            if speed is not None:
                kinds[kind][escaped(label)] = float(speed)
    data = [
        {
            "type": "bar",
            "name": kind,
            "x": list(speeds),
            "y": list(speeds.values()),
            "text": [f"{speed:.1f}" for speed in speeds.values()],
            "marker": {"color": colour},
            "hovertemplate": "%{x}: %{y:.2f} tokens/s<extra>%{fullData.name}</extra>",
        }
        for (kind, speeds), colour in zip(kinds.items(), (GREY, GREEN, RED), strict=True)
        if speeds
    ]
    layout = {
        "barmode": "group",
        "xaxis": {"type": "category"},
        "yaxis": {"title": {"text": "tokens per second"}},
    }
    return {"data": data, "layout": layout} if data else None


def _curve(
    curve: Mapping[str, list[Any]], series: str, label: str, colour: str, facts: Facts
) -> dict[str, Any]:
    """A line over size; its name says what the run chose."""
    chosen = f", k* {facts.search['k']:,}" if facts.search else ""
    name = escaped(f"{label}{chosen}")
    return line(curve["k"], curve[series], name, colour, hovertemplate=HOVER)


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _sizes(yaxis: dict[str, Any]) -> dict[str, Any]:
    return {"xaxis": log_sizes(), "yaxis": yaxis}
