"""The page of a sweep: speed against drift and against score, and all points; no outside parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vtrim import __version__
from vtrim.artifacts import write_text
from vtrim.evaluation.report.figures import BLUE, GREEN, GREY, Figure, line, shares
from vtrim.evaluation.report.page import HERE, script_json
from vtrim.evaluation.report.rules import escaped
from vtrim.evaluation.sweep_rows import plain_score, rows
from vtrim.evaluation.sweep_space import named

_TEMPLATE = Path(__file__).parent / "sweep.html.j2"


def write_page(path: Path, result: Mapping[str, Any]) -> None:
    """Writes the page of a finished sweep."""
    write_text(path, render(result))


def render(result: Mapping[str, Any]) -> str:
    """The page as text. Everything from the run is escaped."""
    import jinja2
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    figures = {"drift": drift_figure(result)}
    if result["score_front"]:
        figures["score"] = score_figure(result)
    return template.render(
        version=__version__,
        result=result,
        rows=rows(result),
        figures=list(figures),
        figures_json=script_json(figures),
        plotly_js=get_plotlyjs(),
        page_js=(HERE / "page.js").read_text(encoding="utf-8"),
        page_css=(HERE / "page.css").read_text(encoding="utf-8"),
    )


def drift_figure(result: Mapping[str, Any]) -> Figure:
    """Drift over speed-up; the line joins the points that no other one beats."""
    axis = {**shares("tokens off the target's arg-max"), "rangemode": "tozero"}
    if result["temperature"] > 0:
        axis = {"title": {"text": result["drift_measure"]}}
    return _figure(result, "drift", result["front"], axis)


def score_figure(result: Mapping[str, Any]) -> Figure:
    """Score over speed-up; the line joins the points that no other one beats."""
    axis = {**shares("score"), "range": [-0.05, 1.05]}
    figure = _figure(result, "score", result["score_front"], axis)
    plain = [plain_score(result)]
    mark = line([1.0], plain, "plain decoding", GREY, mode="markers", marker={"size": 11})
    figure["data"].append(mark)
    return figure


def _figure(
    result: Mapping[str, Any], field: str, front: Sequence[int], axis: dict[str, Any]
) -> Figure:
    points = result["points"]
    known = [p for p in points if p["speedup"] is not None and p[field] is not None]
    best = [points[index] for index in front]
    return {
        "data": [
            _trace(known, field, "points", BLUE, "markers"),
            _trace(best, field, "no point beats these", GREEN, "lines+markers"),
        ],
        "layout": {"xaxis": {"title": {"text": "speed-up over plain decoding"}}, "yaxis": axis},
    }


def _trace(
    points: Sequence[Mapping[str, Any]], field: str, name: str, colour: str, mode: str
) -> dict[str, Any]:
    return line(
        [point["speedup"] for point in points],
        [point[field] for point in points],
        name,
        colour,
        mode=mode,
        marker={"size": 8},
        text=[escaped(named(point["knobs"])) for point in points],
        hovertemplate="%{text}<br>speed-up %{x:.2f}, %{y:.3f}<extra></extra>",
    )
