"""The points of a sweep as rows of text, the fastest first; one form for terminal and page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtrim.evaluation.report.rules import UNKNOWN, decimal, interval, percent
from vtrim.evaluation.sweep_space import spelled

_SHORT = {"num_draft_tokens": "L"}


def rows(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row a point: texts by heading; the score only where prompts have answers.

    ``*`` and ``+`` mark the fronts of speed and drift, and of speed and score.
    """
    points = result["points"]
    order = sorted(range(len(points)), key=lambda i: -(points[i]["speedup"] or 0.0))
    return [_row(result, index) for index in order]


def plain_score(result: Mapping[str, Any]) -> float | None:
    """Mean score of plain decoding beside the points; None where prompts have no answers."""
    known = [p["plain_score"] for p in result["points"] if p["plain_score"] is not None]
    return sum(known) / len(known) if known else None


def _row(result: Mapping[str, Any], index: int) -> dict[str, str]:
    point, names = result["points"][index], _knobs(result)
    marks = "*" * (index in result["front"]) + "+" * (index in result["score_front"])
    setting = ", ".join(_value(point["knobs"].get(name, UNKNOWN)) for name in names)
    row = {
        ", ".join(_SHORT.get(name, name) for name in names): f"{marks} {setting}".strip(),
        "tokens/s": decimal(point["tokens_per_second"], 1),
        "speed-up": decimal(point["speedup"]),
        "95 %": interval(point["speedup_interval"]).replace(" to ", "-"),
        "length": decimal(point["acceptance_length"]),
        "off arg-max": percent(point["off_argmax_share"]),
        "log p": decimal(point["mean_log_prob"], 3),
    }
    return {**row, "score": percent(point["score"], 0)} if result["score_front"] else row


def _knobs(result: Mapping[str, Any]) -> list[str]:
    """The knobs of all points, in the order in which they came."""
    return list(dict.fromkeys(name for point in result["points"] for name in point["knobs"]))


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else spelled(value)
