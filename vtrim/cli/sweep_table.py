"""The table of ``vtrim sweep``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from vtrim.cli import common
from vtrim.evaluation.report.rules import percent
from vtrim.evaluation.sweep_rows import plain_score, rows

_FIXED = "\N{NO-BREAK SPACE}"


def show(result: Mapping[str, Any]) -> None:
    """Prints one row a point, the fastest first, then what the numbers rest on."""
    found = rows(result)
    shown = [name for name in found[0] if name != "tokens/s"]  # the page has room for it
    table = Table(title=f"Sweep of {result['acceptor']}", title_justify="left")
    for name in shown:
        longest = max(map(len, [*name.split(), *(row[name] for row in found)]))
        justify: Any = "left" if name == shown[0] else "right"
        table.add_column(Text(name), justify=justify, min_width=longest)
    for row in found:
        table.add_row(*(Text(row[name].replace(" ", _FIXED)) for name in shown))
    common.results.print(table)
    for line in footnotes(result):
        common.results.print(line, markup=False, soft_wrap=True)


def footnotes(result: Mapping[str, Any]) -> Sequence[str]:
    """What a reader must know to use the table."""
    lines = [
        "* no other point is at least as fast with no more drift, and better in one of both, by "
        "the measured values: where intervals (95 %) overlap, the order may be chance. "
        "Length: tokens a round; log p: the target's, mean of the emitted tokens [nats].",
        f"Drift: {result['drift_measure']}. {result['baseline']}",
        f"{result['prompts']} prompts, {result['max_new_tokens']} tokens at most, temperature "
        f"{result['temperature']:g}, {result['drafter']} drafter.",
    ]
    if result["prompts"] < 5:
        lines.append("Fewer than 5 prompts: no interval; differences may be chance.")
    if result["score_front"]:
        lines.append(
            "Score: the tasks' metric, else the share of replies that give the answer recorded "
            f"for them, replies cut at {result['max_new_tokens']} tokens as they stand (plain "
            f"decoding: {percent(plain_score(result), 0)}); + as *, with score for drift."
        )
    if result["prompts_skipped"]:
        skipped = ", ".join(f"{why} {n}" for why, n in result["prompts_skipped"].items())
        lines.append(f"Prompts skipped: {skipped}.")
    return [*lines, f"Written: {result['artifact']}, {result['page']}"]
