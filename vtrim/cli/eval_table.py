"""The table of ``vtrim eval``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from vtrim.cli import common

_COLUMNS = ("rule", "tokens/s", "speed-up", "95 %", "acceptance length", "off arg-max")


def show(result: Mapping[str, Any]) -> None:
    """Prints one row a rule, then what the numbers rest on."""
    table = Table(title="Speculative decoding", title_justify="left")
    for name in _COLUMNS:
        justify: Any = "left" if name == "rule" else "right"
        table.add_column(Text(name), justify=justify)
    speed, off = result["plain_tokens_per_second"], result["plain"]["off_argmax_share"]
    table.add_row("plain", _number(speed, 1), "1.00", "", "1.00", _percent(off))
    rules = _rules(result)
    for name, numbers in rules.items():
        table.add_row(Text(name), *_cells(numbers))
    common.results.print(table)
    for line in (*_positions(rules), *_footnotes(result)):
        common.results.print(line, markup=False, soft_wrap=True)


def _rules(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The exact rule, where it was measured beside a lossy one, and the chosen rule."""
    chosen = {result["acceptor"]: result}
    if "exact" not in result:
        return chosen
    exact = "greedy" if result["temperature"] == 0 else "rejection"
    return {f"exact ({exact})": result["exact"], **chosen}


def _cells(rule: Mapping[str, Any]) -> list[str]:
    interval = rule["speedup_interval"]
    return [
        _number(rule["tokens_per_second"], 1),
        _number(rule["speedup"], 2),
        "" if interval is None else f"{interval[0]:.2f}-{interval[1]:.2f}",
        _number(rule["acceptance_length"], 2),
        _percent(rule["off_argmax_share"]),
    ]


def _positions(rules: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """How far chains were accepted, a line a rule."""
    lines = []
    for name, numbers in rules.items():
        shares = " ".join(f"{share:.2f}" for share in numbers["acceptance_by_position"])
        if shares:
            lines.append(f"Accepted up to position 1, 2, ...: {shares} ({name}).")
    return lines


def _footnotes(result: Mapping[str, Any]) -> list[str]:
    shares = ", ".join(f"{phase} {_percent(share)}" for phase, share in result["shares"].items())
    lines = [
        f"Time of a round: {shares}.",
        f"{result['prompts']} prompts, {result['tokens']:,} tokens, "
        f"{result['num_draft_tokens']} drafted a round, temperature {result['temperature']:g}, "
        f"{result['dtype']} on {result['device']}.",
        "Speed-ups are over plain decoding in the same loop (95 % interval over prompts), "
        "prefill left out.",
    ]
    if result["identical_to_plain"] is not None:
        lines.append(
            f"Replies identical to plain decoding: {_percent(result['identical_to_plain'])}"
            f"{_ties(result)}."
        )
    if not result["lossless"]:
        lines.append(
            f"{result['acceptor']} is lossy: {_percent(result['off_argmax_share'])} of its tokens "
            f"are not the target's arg-max (plain decoding: "
            f"{_percent(result['plain']['off_argmax_share'])}). Its speed is no gain until quality "
            "is checked."
        )
    if result["prompts_skipped"]:
        skipped = ", ".join(f"{why} {n}" for why, n in result["prompts_skipped"].items())
        lines.append(f"Prompts skipped: {skipped}.")
    return [*lines, f"Written: {result['artifact']}"]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _ties(result: Mapping[str, Any]) -> str:
    """Why an exact rule's text can differ in half precision."""
    if not result["lossless"] or result["dtype"] == "float32":
        return ""
    return f" ({result['dtype']} ties between batch shapes; --dtype fp32 shows identity)"
