"""What ``vtrim compare`` does: find two results, compare them, show the differences."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from vtrim.artifacts import Run
from vtrim.cli import common
from vtrim.errors import InputError, OptionError
from vtrim.evaluation.compare import METRICS
from vtrim.evaluation.compare_results import compare_results, read_result

_COLUMNS = ("", "A", "B", "B - A", "95 %", "B / A", "p")


def run_compare(first: Path, second: Path) -> dict[str, Any]:
    """The comparison of two results.

    Raises:
        InputError: one cannot be read. OptionError: a folder holds several. MismatchError: they do
            not measure the same.
    """
    paths = _file(first, second), _file(second, first)
    if paths[0].resolve() == paths[1].resolve():
        raise OptionError(f"{paths[0]}: compared with itself. Name two results.")
    names = _names(*paths)
    a, b = (read_result(path, name) for path, name in zip(paths, names, strict=True))
    return compare_results(a, b)


def show(result: Mapping[str, Any]) -> None:
    """Prints a row a metric, then each difference in words."""
    a, b = result["a"]["name"], result["b"]["name"]
    table = Table(title=Text(f"A: {a}, B: {b}"), title_justify="left")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if not name else "right")
    digits = {metric.name: metric.digits for metric in METRICS}
    for one in result["comparisons"]:
        table.add_row(*_cells(one, digits[one["metric"]]))
    common.results.print(table)
    lines = [one["sentence"] for one in result["comparisons"]]
    lines += (result["expected"] or {}).get("sentences", [])
    for key, (its, other) in result["differs"].items():
        lines.append(f"Not the same: {key.replace('_', ' ')} ({its} in A, {other} in B).")
    for line in (*lines, *result["notes"]):
        common.results.print(line, markup=False, soft_wrap=True)


def _cells(one: Mapping[str, Any], digits: int) -> list[str]:
    bounds = one["interval"]
    return [
        one["metric"].replace("_", " "),
        f"{one['a']:.{digits}f}",
        f"{one['b']:.{digits}f}",
        f"{one['difference']:+.{digits}f}",
        "" if bounds is None else f"{bounds[0]:+.{digits}f} to {bounds[1]:+.{digits}f}",
        "" if one["ratio"] is None else f"{one['ratio']:.3f}",
        "" if one["p_value"] is None else f"{one['p_value']:.4f}",
    ]


def _file(typed: Path, other: Path) -> Path:
    """The result that a path names: a file, or the one in a run folder.

    Of several in a folder, the one that the other side's name or folder has too.
    """
    if not typed.exists():
        raise InputError(f"{typed}: no such result. Give eval/NAME.json of a run, or its folder.")
    if not typed.is_dir():
        return typed
    found = _results(typed)
    if not found:
        raise InputError(f"{typed}: no result here. Run `vtrim eval --run {typed}` first.")
    known = _results(other) if other.is_dir() else [other]
    common_names = {path.name for path in found} & {path.name for path in known}
    fitting = [path for path in found if path.name in common_names] if len(found) > 1 else found
    if len(fitting) != 1:
        names = ", ".join(path.name for path in found)
        raise OptionError(f"{typed}: holds several results ({names}). Name one of the files.")
    return fitting[0]


def _results(folder: Path) -> list[Path]:
    return sorted(Run(folder).eval.glob("*.json"))


def _names(a: Path, b: Path) -> tuple[str, str]:
    """What sentences call two files: by their name, else by their run, else by their path."""
    for names in ((a.stem, b.stem), (_run_of(a), _run_of(b))):
        if names[0] != names[1]:
            return names
    return str(a), str(b)


def _run_of(path: Path) -> str:
    return path.resolve().parent.parent.name
