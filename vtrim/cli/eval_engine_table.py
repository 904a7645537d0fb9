"""The table of ``vtrim eval`` with a serving engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from vtrim.cli import common

_COLUMNS = ("decoding", "tokens/s", "speed-up", "95 %", "acceptance length", "95 %")


def show_engine(result: Mapping[str, Any]) -> None:
    """Prints a row without a draft and one with it, then what the numbers rest on."""
    engine = result["engine"]
    version = f" {engine['version']}" if engine["version"] else ""
    table = Table(title=Text(f"{engine['name']}{version}"), title_justify="left")
    for name in _COLUMNS:
        justify: Any = "left" if name == "decoding" else "right"
        table.add_column(Text(name), justify=justify)
    if result["plain"] is not None:
        speed = result["plain_tokens_per_second"]
        table.add_row("without a draft", _number(speed, 1), "1.00", "", "1.00", "")
    table.add_row(
        "with the draft",
        _number(result["tokens_per_second"], 1),
        _number(result["speedup"], 2),
        _range(result["speedup_interval"]),
        _number(result["acceptance_length"], 2),
        _range(result["acceptance_length_interval"]),
    )
    common.results.print(table)
    for line in _footnotes(result):
        common.results.print(line, markup=False, soft_wrap=True)


def _footnotes(result: Mapping[str, Any]) -> list[str]:
    engine = result["engine"]
    lines = []
    shares = " ".join(_number(share, 2) for share in result["acceptance_by_position"])
    if shares:
        lines.append(f"Accepted up to position 1, 2, ... by {engine['name']}'s count: {shares}.")
    if engine["acceptance_length"] is not None:
        lines.append(
            f"{engine['name']} itself says an acceptance length of "
            f"{engine['acceptance_length']:.2f}: {engine['acceptance_length_is']}. Ours leaves out "
            "the prefill's token and what is thrown away behind a reply's end."
        )
    lines.append(
        f"{result['prompts']} prompts, {result['tokens']:,} tokens, temperature "
        f"{result['temperature']:g}, {result['batch_size']} at a time, {result['repeats']} "
        f"repeat{'s' if result['repeats'] > 1 else ''}; prefill left out."
    )
    for name, task in result.get("tasks", {}).items():
        lines.append(_task(name, task))
    if result["identical_to_plain"] is not None:
        share = f"{100 * result['identical_to_plain']:.1f} %"
        lines.append(f"Replies identical to those without a draft: {share}.")
    if result["prompts"] < 5:
        lines.append("Fewer than 5 prompts: no interval; differences may be chance.")
    lines.append(f"Written to {result['artifact']}")
    return lines


def _task(name: str, task: Mapping[str, Any]) -> str:
    """A task's speed, and its scores where it has a scorer."""
    line = (
        f"{name}: {task['questions']} questions, {_number(task['tokens_per_second'], 1)} tokens/s, "
        f"acceptance length {_number(task['acceptance_length'], 2)}"
    )
    scores = task["scores"]
    if not scores:
        return f"{line}."
    said = ", ".join(
        f"{shown} {_percent(scores.get(rule))}"
        for rule, shown in (("plain", "without a draft"), ("chosen", "with it"))
    )
    return f"{line}; {task['metric']} {said}."


def _percent(value: Any) -> str:
    return f"{100 * value:.1f} %" if isinstance(value, int | float) else "-"


def _range(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.2f}-{interval[1]:.2f}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
