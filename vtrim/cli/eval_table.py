"""The table of ``vtrim eval``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from vtrim.cli import common

_COLUMNS = (
    "rule",
    "tokens/s",
    "speed-up",
    "acceptance length",
    "accepted by position",
    "off arg-max",
)


def show(result: Mapping[str, Any]) -> None:
    """Prints one row a rule, then what the numbers rest on."""
    table = Table(title="Speculative decoding", title_justify="left")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name == "rule" else "right")
    table.add_row("plain decoding", _number(result["plain_tokens_per_second"], 1), "1.00", "1.00")
    if "exact" in result:
        exact = "greedy" if result["temperature"] == 0 else "rejection"
        table.add_row(f"exact ({exact})", *_cells(result["exact"]))
    table.add_row(Text(result["settings"]["acceptor"]["name"], style="bold"), *_cells(result))
    common.results.print(table)
    for line in _footnotes(result):
        common.results.print(line, markup=False, soft_wrap=True)


def _cells(rule: Mapping[str, Any]) -> list[str]:
    interval = rule["speedup_interval"]
    spread = "" if interval is None else f" ({interval[0]:.2f}-{interval[1]:.2f})"
    return [
        _number(rule["tokens_per_second"], 1),
        _number(rule["speedup"], 2) + spread,
        _number(rule["acceptance_length"], 2),
        " ".join(f"{share:.2f}" for share in rule["acceptance_by_position"]),
        _percent(rule["off_argmax_share"]),
    ]


def _footnotes(result: Mapping[str, Any]) -> list[str]:
    shares = ", ".join(f"{phase} {_percent(share)}" for phase, share in result["shares"].items())
    lines = [
        f"{result['prompts']} prompts, {result['tokens']:,} tokens, "
        f"{result['num_draft_tokens']} drafted a round, temperature {result['temperature']:g}, "
        f"{result['dtype']} on {result['device']}.",
        f"Time of a round: {shares}.",
        "Speed-ups are over plain decoding in the same loop (95 % interval over prompts); "
        "prefill is left out.",
    ]
    if result["identical_to_plain"] is not None:
        lines.append(
            f"Replies identical to plain decoding: {_percent(result['identical_to_plain'])}."
        )
    if not result["lossless"]:
        lines.append(
            f"{result['acceptor']} is lossy: {_percent(result['off_argmax_share'])} of its tokens "
            "are not the target's arg-max. Its speed is no gain until quality is checked."
        )
    if result["prompts_skipped"]:
        skipped = ", ".join(f"{why} {n}" for why, n in result["prompts_skipped"].items())
        lines.append(f"Prompts skipped: {skipped}.")
    return [*lines, f"Written: {result['artifact']}"]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
