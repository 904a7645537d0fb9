"""The table of ``vtrim eval``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from vtrim.cli import common
from vtrim.cli.eval_lines import statistics
from vtrim.cli.eval_tasks_table import show_tasks
from vtrim.cli.eval_values import exact_rule
from vtrim.evaluation.report.rules import decimal, percent, signed

_COLUMNS = ("rule", "tokens/s", "speed-up", "95 %", "acceptance length", "off arg-max")
_ENOUGH_POSITIONS = 64
_PRICE = ("rule", "log p", "change", "95 %", "as plain", "share")


def show(result: Mapping[str, Any]) -> None:
    """Prints one row a rule, the price of a lossy one, then what the numbers rest on."""
    table = result_table("Speculative decoding", _COLUMNS)
    speed, off = result["plain_tokens_per_second"], result["plain"]["off_argmax_share"]
    table.add_row("plain", decimal(speed, 1), "1.00", "", "1.00", percent(off))
    rules = _rules(result)
    for name, numbers in rules.items():
        table.add_row(Text(name), *rule_cells(numbers))
    common.results.print(table)
    if not result["lossless"]:
        _show_price(result, rules)
    if result["diagnosed"]:
        _show_diagnosis(result)
    show_tasks(result)
    for line in (*_positions(rules), *statistics(result, rules), *_footnotes(result)):
        common.results.print(line, markup=False, soft_wrap=True)


def result_table(title: str, columns: tuple[str, ...]) -> Table:
    """A table whose first column is of words and the others of numbers."""
    table = Table(title=Text(title), title_justify="left")
    for name in columns:
        justify: Any = "left" if name == columns[0] else "right"
        table.add_column(Text(name), justify=justify)
    return table


def _show_price(result: Mapping[str, Any], rules: Mapping[str, Mapping[str, Any]]) -> None:
    """How far the rules' replies stray from plain decoding's."""
    table = result_table("The price", _PRICE)
    table.add_row("plain", decimal(result["plain"]["mean_log_prob"], 3))
    for name, numbers in rules.items():
        bounds, tokens = numbers["log_prob_change_interval"], numbers["plain_prefix_tokens"]
        table.add_row(
            Text(name),
            decimal(numbers["mean_log_prob"], 3),
            signed(numbers["log_prob_change"]),
            "" if bounds is None else f"{bounds[0]:+.2f} to {bounds[1]:+.2f}",
            "-" if tokens is None else f"{tokens:.1f}",
            percent(numbers["plain_prefix_share"]),
        )
    common.results.print(table)


def _show_diagnosis(result: Mapping[str, Any]) -> None:
    """What dropmatch saw, beside its paper."""
    from vtrim.evaluation.diagnosis import diagnosis

    table = Table(title="Diagnosis (the paper's 70B in the last column)", title_justify="left")
    for name in ("table", "what", "here", "paper"):
        table.add_column(Text(name))
    for line in diagnosis(result):
        table.add_row(*map(Text, (line.table, line.what, line.here, line.paper)))
    common.results.print(table)


def _rules(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The exact rule, where it was measured beside a lossy one, and the chosen rule."""
    chosen = {result["acceptor"]: result}
    if "exact" not in result:
        return chosen
    exact = exact_rule(result["temperature"])
    return {f"exact ({exact})": result["exact"], **chosen}


def rule_cells(rule: Mapping[str, Any]) -> list[str]:
    """A rule's speed, speed-up with its interval, acceptance length and share off the arg-max."""
    interval = rule["speedup_interval"]
    return [
        decimal(rule["tokens_per_second"], 1),
        decimal(rule["speedup"], 2),
        "" if interval is None else f"{interval[0]:.2f}-{interval[1]:.2f}",
        decimal(rule["acceptance_length"], 2),
        percent(rule["off_argmax_share"]),
    ]


def _positions(rules: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """How far chains were accepted, a line a rule."""
    lines = []
    for name, numbers in rules.items():
        shares = " ".join(f"{share:.2f}" for share in numbers["acceptance_by_position"])
        if shares:
            lines.append(
                f"Accepted up to position 1, 2, ... of the rounds that drafted so far: {shares} "
                f"({name})."
            )
    return lines


def _footnotes(result: Mapping[str, Any]) -> list[str]:
    shares = ", ".join(f"{phase} {percent(share)}" for phase, share in result["shares"].items())
    lines = [
        f"Time of a round: {shares}.",
        f"{result['prompts']} prompts, {result['tokens']:,} tokens, {_drafted(result)}, "
        f"temperature {result['temperature']:g}, {result['dtype']} on {result['device']}"
        f"{_together(result)}.",
        "Speed-ups are over plain decoding in the same loop (95 % interval over prompts), "
        "prefill left out.",
    ]
    if result["identical_to_plain"] is not None:
        lines.append(
            f"Replies identical to plain decoding: {percent(result['identical_to_plain'])}"
            f"{_ties(result)}."
        )
    if result["prompts"] < 5:
        lines.append("Fewer than 5 prompts: no interval; differences may be chance.")
    if (result.get("calibration") or {}).get("p_drop") is not None:
        lines.append(_fitted(result["calibration"]))
    if not result["lossless"]:
        lines.append(
            "log p: mean of the emitted tokens under the target [nats], and its change from plain "
            "decoding; as plain: tokens, and share of a reply, before it leaves plain decoding's."
        )
    if result["decodes_as_greedy"]:
        lines.append(f"{result['acceptor']} decodes as greedy at temperature 0: nothing is lost.")
    elif not result["lossless"]:
        lines.append(
            f"{result['acceptor']} is lossy: {percent(result['off_argmax_share'])} of its tokens "
            f"are not the target's arg-max (plain decoding: "
            f"{percent(result['plain']['off_argmax_share'])}). Its speed is no gain until quality "
            "is checked."
        )
    if result["prompts_skipped"]:
        skipped = ", ".join(f"{why} {n}" for why, n in result["prompts_skipped"].items())
        lines.append(f"Prompts skipped: {skipped}.")
    return [*lines, f"Written: {result['artifact']}"]


def _fitted(found: Mapping[str, Any]) -> str:
    """What ``--p-drop auto`` chose, and from how much."""
    positions = found["positions"]
    few = "" if positions >= _ENOUGH_POSITIONS else " (few: the choice is rough)"
    low, high = found.get("p_drop_range") or (found["p_drop"],) * 2
    earlier = "" if low == high else f" Prompts had {low:.3g} to {high:.3g}."
    return (
        f"--p-drop auto chose {found['p_drop']:.3g} from {positions} prompt positions{few}: there "
        f"{percent(found['agreement'])} of the heads keep the target's arg-max.{earlier}"
    )


def _drafted(result: Mapping[str, Any]) -> str:
    """What drafted how many tokens."""
    most = "at most " if result["settings"]["adaptive"] else ""
    if result["drafter"] == "tree":
        shape = result["settings"]["drafter"]
        count = (
            f"{shape['total_token'] - 1} drafted a round, {most}{result['num_draft_tokens']} deep"
        )
    else:
        count = f"{most}{result['num_draft_tokens']} drafted a round"
    if result["rounds"]:
        count += f" (in the mean {result['nodes'] / result['rounds']:.1f})"
    return f"{count} by {result['drafter']}"


def _together(result: Mapping[str, Any]) -> str:
    return f", {result['batch_size']} at a time" if result["batch_size"] > 1 else ""


def _ties(result: Mapping[str, Any]) -> str:
    """Why an exact rule's text can differ in half precision, where it does."""
    same = result["identical_to_plain"] == 1
    if same or not result["lossless"] or result["dtype"] == "float32":
        return ""
    return f" ({result['dtype']} ties between batch shapes; --dtype fp32 shows identity)"
