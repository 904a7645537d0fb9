"""``vtrim tasks``: the benchmarks that ``vtrim eval --task`` knows."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from vtrim.cli import common

_COLUMNS = ("task", "metric", "longest", "licence", "data")


def tasks(as_json: common.JsonOption = False) -> None:
    """List the benchmarks of `vtrim eval --task`: metric, licence, and where the data is.

    Example: vtrim tasks --json
    """
    from vtrim.evaluation.tasks.table import TASKS

    found = [_described(name) for name in TASKS]
    if as_json:
        common.emit_json({"tasks": found})
        return
    table = Table(title="Tasks", title_justify="left")
    for column in _COLUMNS:
        right = column == "longest"
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for task in found:
        cells = (task["name"], task["metric"] or "-", f"{task['max_new_tokens']:,}")
        table.add_row(*map(Text, (*cells, task["licence"], _where(task))))
    common.results.print(table)
    for line in (
        "Data: an installed package, else the hub by `datasets`; --task-data names a file, or a "
        "folder with the files of several tasks.",
        "Longest: tokens of a reply, unless --max-new-tokens is typed. Without a metric nothing is "
        "scored: such replies need a judge.",
    ):
        common.results.print(line, markup=False, soft_wrap=True)


def _described(name: str) -> dict[str, Any]:
    """What there is to know of a task."""
    from vtrim.evaluation.tasks.sources import is_installed
    from vtrim.evaluation.tasks.table import TASKS, find_task

    entry, task = TASKS[name], find_task(name)
    return {
        "name": name,
        "title": task.title,
        "metric": task.metric,
        "licence": task.licence,
        "max_new_tokens": task.max_new_tokens,
        "runs_code": task.runs_code,
        "package": None if entry.package is None else entry.package[0],
        "package_installed": is_installed(entry),
        "hub": [] if entry.hub is None else list(entry.hub.ids),
        "files": list(entry.files),
        "origin": entry.origin,
    }


def _where(task: dict[str, Any]) -> str:
    package = task["package"]
    if package is not None:
        return f"{package} ({'installed' if task['package_installed'] else 'not installed'})"
    return ", ".join(task["hub"]) or "--task-data"
