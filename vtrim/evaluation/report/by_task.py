"""What results say of each task: length and speed, scores beside plain decoding's, its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vtrim.evaluation.report.figures import COLOURS, GREY, Figure, shares
from vtrim.evaluation.report.parts import Grid
from vtrim.evaluation.report.rules import decimal, escaped, interval, percent

TASKS_TEXT = (
    "Tokens a round on each task; bars with 95 % intervals, questions drawn anew where there are "
    "five or more."
)
SCORES_TEXT = (
    "Each task's score over the speed-up: plain decoding stands at 1. A lossy rule that is faster "
    "and scores lower has paid for its speed."
)

Evals = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class TaskRow:
    """One rule on one task of one result. numbers: of its speed; change: score less plain's."""

    run: str
    task: str
    rule: str
    numbers: Mapping[str, Any]
    score: float | None
    change: float | None = None
    change_interval: Any = None


def task_rows(evals: Evals) -> list[TaskRow]:
    """Plain decoding, the exact rule and the chosen one, task by task."""
    return list(_rows(evals))


def tasks_grid(evals: Evals) -> Grid:
    """Every rule on every task."""
    return Grid(
        name="tasks",
        title="By task",
        text="Score: the task's own metric over all questions. Change: of the score, from plain "
        "decoding of the same questions; intervals are 95 %, questions drawn anew, in pairs.",
        columns=("run", "task", "rule", "questions", "tokens/round", "tokens/s", "speed-up",
                 "95 % interval", "metric", "score", "change", "95 % of the change"),
        rows=[_cells(row, evals[row.run]["tasks"][row.task]) for row in task_rows(evals)],
        names=3,
    )  # fmt: skip


def groups_grid(evals: Evals) -> Grid:
    """The chosen rule on each part of each task."""
    return Grid(
        name="groups",
        title="By part of a task",
        text="Subjects, categories, languages. Speeds are of the chosen rule.",
        columns=("run", "task", "part", "prompts", "tokens/round", "tokens/s", "speed-up", "score",
                 "plain score"),
        rows=[
            [
                run,
                task,
                part,
                decimal(numbers.get("prompts"), 0),
                decimal(numbers.get("acceptance_length")),
                decimal(numbers.get("tokens_per_second"), 1),
                decimal(numbers.get("speedup")),
                _score(numbers.get("score")),
                _score(numbers.get("plain_score")),
            ]
            for run, task, found in _tasks(evals)
            for part, numbers in (found.get("groups") or {}).items()
        ],
        names=3,
    )  # fmt: skip


def tasks_figure(evals: Evals) -> Figure | None:
    """Tokens a round by task, a colour a rule."""
    rows = [row for row in task_rows(evals) if row.numbers.get("acceptance_length") is not None]
    rows = [row for row in rows if row.rule != "plain"]
    rules = list(dict.fromkeys(_label(row) for row in rows))
    data = []
    for index, label in enumerate(rules):
        own = [row for row in rows if _label(row) == label]
        lengths = [float(row.numbers["acceptance_length"]) for row in own]
        data.append(
            {
                "type": "bar",
                "name": escaped(label),
                "x": [escaped(row.task) for row in own],
                "y": lengths,
                "error_y": _errors(lengths, own),
                "marker": {"color": COLOURS[index % len(COLOURS)]},
                "hovertemplate": "%{x}: %{y:.2f} tokens/round<extra>%{fullData.name}</extra>",
            }
        )
    layout = {
        "barmode": "group",
        "xaxis": {"type": "category"},
        "yaxis": {"title": {"text": "tokens a round"}, "rangemode": "tozero"},
        "showlegend": True,
    }
    return {"data": data, "layout": layout} if data else None


def scores_figure(evals: Evals) -> Figure | None:
    """Score over speed-up, a colour a task, a shape a rule; plain decoding in grey."""
    rows = [
        row
        for row in task_rows(evals)
        if row.score is not None and row.numbers.get("speedup") is not None
    ]
    tasks = list(dict.fromkeys(row.task for row in rows))
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": escaped(f"{row.task}: {_label(row)}"),
            "x": [row.numbers["speedup"]],
            "y": [row.score],
            "marker": {
                "color": GREY if row.rule == "plain" else COLOURS[tasks.index(row.task) % 5],
                "size": 11,
                "symbol": "circle" if row.rule in ("plain", "exact") else "diamond",
            },
            "hovertemplate": "%{x:.2f} x, %{y:.1%}<extra>%{fullData.name}</extra>",
        }
        for row in rows
    ]
    xaxis = {"title": {"text": "speed-up over plain"}, "rangemode": "tozero"}
    layout = {"xaxis": xaxis, "yaxis": {**shares("score"), "rangemode": "tozero"}}
    return {"data": data, "layout": layout} if data else None


def _tasks(evals: Evals) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for run, result in evals.items():
        for task, found in (result.get("tasks") or {}).items():
            yield run, task, found


def _rows(evals: Evals) -> Iterator[TaskRow]:
    for run, task, found in _tasks(evals):
        scores = found.get("scores") or {}
        plain = {"tokens_per_second": found.get("plain_tokens_per_second"), "speedup": 1.0}
        yield TaskRow(run, task, "plain", plain, scores.get("plain"))
        if found.get("exact"):
            yield TaskRow(run, task, "exact", found["exact"], scores.get("exact"))
        yield TaskRow(
            run,
            task,
            str(evals[run].get("acceptor", "chosen")),
            found,
            scores.get("chosen"),
            scores.get("change"),
            scores.get("change_interval"),
        )


def _cells(row: TaskRow, found: Mapping[str, Any]) -> list[str]:
    numbers = row.numbers
    return [
        row.run,
        row.task,
        row.rule,
        decimal(found.get("questions"), 0),
        "1.00" if row.rule == "plain" else decimal(numbers.get("acceptance_length")),
        decimal(numbers.get("tokens_per_second"), 1),
        decimal(numbers.get("speedup")),
        interval(numbers.get("speedup_interval")),
        str(found.get("metric") or ""),
        _score(row.score),
        "" if row.change is None else f"{100 * row.change:+.1f}",
        "" if not row.change_interval else _points(row.change_interval),
    ]


def _points(bounds: Any) -> str:
    low, high = bounds
    return f"{100 * low:+.1f} to {100 * high:+.1f}"


def _score(value: float | None) -> str:
    return "" if value is None else percent(value)


def _label(row: TaskRow) -> str:
    return row.rule if row.rule == row.run or row.rule == "plain" else f"{row.run}: {row.rule}"


def _errors(lengths: list[float], rows: list[TaskRow]) -> dict[str, Any]:
    """Error bars; nothing to see where there is no interval."""
    bounds = [row.numbers.get("acceptance_length_interval") for row in rows]
    ends = [bound or (length, length) for bound, length in zip(bounds, lengths, strict=True)]
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - length for (_, high), length in zip(ends, lengths, strict=True)],
        "arrayminus": [length - low for (low, _), length in zip(ends, lengths, strict=True)],
    }
