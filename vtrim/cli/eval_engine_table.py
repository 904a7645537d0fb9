"""The table of ``vtrim eval`` with a serving engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtrim.cli import common
from vtrim.cli.eval_lines import statistics
from vtrim.cli.eval_table import result_table, rule_cells
from vtrim.cli.eval_tasks_table import show_tasks
from vtrim.evaluation.report.rules import decimal, percent

_COLUMNS = ("decoding", "tokens/s", "speed-up", "95 %", "acceptance length")


def show_engine(result: Mapping[str, Any]) -> None:
    """Prints a row without a draft and one with it, then what the numbers rest on."""
    engine, name = result["engine"], "with the draft"
    version = f" {engine['version']}" if engine["version"] else ""
    table = result_table(f"{engine['name']}{version}", _COLUMNS)
    if result["plain"] is not None:
        speed = decimal(result["plain_tokens_per_second"], 1)
        table.add_row("without a draft", speed, "1.00", "", "1.00")
    *cells, _ = rule_cells(result)
    table.add_row(name, *cells)
    common.results.print(table)
    show_tasks(result)
    for line in (*statistics(result, {name: result}), *_footnotes(result)):
        common.results.print(line, markup=False, soft_wrap=True)


def _footnotes(result: Mapping[str, Any]) -> list[str]:
    engine = result["engine"]
    lines = []
    shares = " ".join(decimal(share) for share in result["acceptance_by_position"])
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
        f"{result['temperature']:g}, {result['batch_size']} at a time; prefill left out."
    )
    if result["identical_to_plain"] is not None:
        share = percent(result["identical_to_plain"])
        lines.append(f"Replies identical to those without a draft: {share}.")
    if result["prompts"] < 5:
        lines.append("Fewer than 5 prompts: no interval; differences may be chance.")
    lines.append(f"Written: {result['artifact']}")
    return lines
