"""How vocabularies and their differences are shown."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from vtrim.cli import common


def print_vocab(result: dict[str, Any]) -> None:
    """One vocabulary: facts, then the tokens on both sides of its edge."""
    table = Table(title="Draft vocabulary", show_header=False)
    for name, value in _facts(result):
        table.add_row(name, Text(value, overflow="fold"))
    common.results.print(table)
    stops = result["stop_ids"]
    if stops and stops["missing"]:
        common.warn(f"stop token ids {stops['missing']} are missing: no reply's end is drafted")
    for name in ("first", "last"):
        if result[f"{name}_kept"]:
            common.results.print(_tokens(f"{name} ids kept", result[f"{name}_kept"]))
    if result["rarest_kept"]:
        common.results.print(_tokens("rarest kept", result["rarest_kept"]))
    if result["missed_most"]:
        common.results.print(_tokens("most frequent left out", result["missed_most"]))


def _facts(result: dict[str, Any]) -> list[tuple[str, str]]:
    size = result["target_vocab_size"]
    facts = [
        ("source", f"{result['source']} ({result['format']})"),
        ("tokens k", f"{result['k']:,} of {size:,} ({result['share']:.2%})"),
        (
            "ids",
            f"{result['first_id']:,} to {result['last_id']:,} in {result['ranges']:,} ranges",
        ),
        ("in each eighth of the ids", " ".join(f"{n:,}" for n in result["by_eighth"])),
    ]
    if result["moved"]:
        facts.append(("order", f"not ascending in the file ({result['moved']:,} rows moved)"))
    if result["stop_ids"]:
        inside = ", ".join(map(str, result["stop_ids"]["inside"])) or "none"
        facts.append(("stop tokens inside", inside))
    if result["forced"]:
        facts.append(("forced by the search", ", ".join(map(str, result["forced"]))))
    if result["coverage"] is not None:
        share = f"{result['coverage']:.2%} of {result['counted_tokens']:,} counted tokens"
        facts.append(("coverage", share))
    if result["heldout_coverage"] is not None:
        share = f"{result['heldout_coverage']:.2%}"
        if result["chosen_from_counts"]:
            share += " (these rows counted in its choice; `vtrim search` leaves them out)"
        facts.append(("of the held-out rows", share))
    return [*facts, ("fingerprint", result["fingerprint"])]


def print_diff(result: dict[str, Any]) -> None:
    """Two vocabularies side by side, then what each has alone."""
    table = Table(title="Draft vocabularies")
    table.add_column("")
    for name in ("a", "b"):
        table.add_column(name, justify="right")
    sides = (result["a"], result["b"])
    table.add_row("source", *(Text(side["source"]) for side in sides))
    table.add_row("tokens k", *(f"{side['k']:,}" for side in sides))
    table.add_row("only there", *(f"{result[key]['size']:,}" for key in ("only_a", "only_b")))
    if result["counted_tokens"] is not None:
        table.add_row("coverage", *(_percent(side["coverage"]) for side in sides))
        alone = (result["only_a"], result["only_b"])
        table.add_row("covered only there", *(_percent(side["share"]) for side in alone))
    common.results.print(table)
    common.results.print(
        f"common: {result['common']:,} tokens, Jaccard {result['jaccard']:.4f}", markup=False
    )
    for name in ("a", "b"):
        if result[f"only_{name}"]["listed"]:
            common.results.print(_tokens(f"only in {name}", result[f"only_{name}"]["listed"]))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.2%}"


def _tokens(title: str, tokens: list[dict[str, Any]]) -> Table:
    table = Table(title=title)
    table.add_column("id", justify="right")
    table.add_column("count", justify="right")
    table.add_column("token")
    for token in tokens:
        count = "-" if token["count"] is None else f"{token['count']:,}"
        table.add_row(str(token["id"]), count, Text(token["text"] or "-"))
    return table
