"""The tasks of ``vtrim eval`` as a table: speed and score of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from vtrim.cli import common
from vtrim.evaluation.report.rules import decimal, signed

_SPEED = ("task", "prompts", "length", "speed-up", "metric")
_RULES = ("plain", "exact", "chosen")


def show_tasks(result: Mapping[str, Any]) -> None:
    """Prints a row a task; nothing where none was asked."""
    tasks: Mapping[str, Mapping[str, Any]] = result.get("tasks") or {}
    if not tasks:
        return
    table = Table(title=f"Tasks, decoded by {result['acceptor']}", title_justify="left")
    rules = [rule for rule in _RULES if any(rule in (t["scores"] or {}) for t in tasks.values())]
    for column in (*_SPEED, *rules, *(["change"] if rules else [])):
        table.add_column(column, justify="left" if column in ("task", "metric") else "right")
    for name, task in tasks.items():
        table.add_row(*map(Text, _cells(name, task, rules)))
    common.results.print(table)
    ended = {row["prompt"]: row["finish_reason"] for row in result.get("per_prompt", ())}
    for line in (*_lines(tasks), *_doubts(tasks, ended)):
        common.results.print(line, markup=False, soft_wrap=True)


def _cells(name: str, task: Mapping[str, Any], rules: Sequence[str]) -> list[str]:
    """A row: its speed, the score of each rule that decoded, chosen less plain."""
    scores = task["scores"] or {}
    return [
        name,
        str(task["prompts"]),
        decimal(task["acceptance_length"]),
        decimal(task["speedup"]),
        task["metric"] or "-",
        *(decimal(scores.get(rule), 3) for rule in rules),
        *([signed(scores.get("change"))] if rules else []),
    ]


def _lines(tasks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = []
    for name, task in tasks.items():
        scores = task["scores"] or {}
        bounds = scores.get("change_interval")
        if bounds is not None:
            lines.append(
                f"{name}: {task['metric']} changes by {bounds[0]:+.3f} to {bounds[1]:+.3f} against "
                f"plain decoding (95 %, {scores['scored']} replies scored)."
            )
    return lines


def _doubts(
    tasks: Mapping[str, Mapping[str, Any]], ended: Mapping[str, str | None]
) -> Iterator[str]:
    """Replies that count for no score, and those that were cut before they could answer.

    ended: why each prompt's reply ended, by the prompt's fingerprint.
    """
    for name, task in tasks.items():
        if task["scores"] is None:
            continue
        scored = task["scores"]["scored"]
        if scored < task["questions"]:
            yield f"{name}: {scored} of {task['questions']} questions have an answer to score by."
        cut = sum(ended.get(row["prompt"]) == "length" for row in task["scored"])
        if cut:
            yield f"{name}: {cut} of {scored} scored replies were cut at their longest length."
