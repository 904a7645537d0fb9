"""What ``vtrim coverage`` shows: the object of --json, and the tables made from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from vtrim.cli import common

if TYPE_CHECKING:
    from vtrim.cli.coverage_record import Record
    from vtrim.trimming.coverage import Coverage, CoverageCurve

SHARES = ("0.90", "0.95", "0.99")
_LEVEL = 0.95
_COMMON_SIZES = (8192, 16384, 32000, 32768)  # draft vocabularies that published drafts use


def round_sizes(curve: CoverageCurve) -> list[int]:
    """Sizes to show: 1-2-5 steps and usual draft sizes, up to the first that covers everything."""
    steps = [digit * 10**power for power in range(7) for digit in (1, 2, 5)]
    sizes = []
    for k in sorted({*steps, *_COMMON_SIZES, curve.max_k}):
        if curve.num_forced <= k <= curve.max_k:
            sizes.append(k)
            if curve.covered(k) == curve.total:
                break
    return sizes


def result_of(found: Coverage, curve: CoverageCurve, record: Record) -> dict[str, Any]:
    """The object that --json prints, but for where the artefact is."""
    sizes = round_sizes(curve)
    k_for = {share: curve.smallest_k(share) for share in SHARES}
    return {
        "rows_used": found.rows_used,
        "rows_heldout": found.rows_heldout,
        "rows_skipped": dict(found.rows_skipped),
        "rows_by_kind": dict(sorted(found.rows_by_kind.items())),
        "tokens": found.total,
        "distinct": found.distinct,
        "straddling": found.straddling,
        "target_vocab_size": found.target_vocab_size,
        "coverage": {str(k): curve.coverage(k) for k in sizes},
        "heldout_coverage": {str(k): curve.heldout_coverage(k) for k in sizes},
        "heldout_interval": _interval(found, curve, sizes),
        "k_for": k_for,
        "sources": _sources(found, curve, sorted({k for k in k_for.values() if k})),
        "generated": _generated(found, curve, sizes),
        "forced": curve.forced,
        "encoder": record.step.get("encoder"),
        "engine": record.step.get("engine"),
        "processes": record.step.get("processes"),
    }


def _interval(found: Coverage, curve: CoverageCurve, sizes: Sequence[int]) -> dict[str, Any]:
    """Bootstrap interval of held-out C(k) at each size; empty without conversations for it."""
    from vtrim.trimming.analysis import heldout_band

    band = heldout_band(found, curve, sizes, level=_LEVEL)
    return {str(k): [one.low, one.high] for k, one in zip(sizes, band, strict=False)}


def _sources(found: Coverage, curve: CoverageCurve, sizes: Sequence[int]) -> dict[str, Any]:
    """Tokens and C(k) of each source, the largest first; empty where sources are not told apart."""
    from vtrim.trimming.analysis import by_source

    table: dict[str, Any] = {}
    for k in sizes:
        for one in by_source(found, curve, k):
            entry = table.setdefault(
                one.name, {"tokens": one.tokens, "share": one.share, "coverage": {}}
            )
            entry["coverage"][str(k)] = one.coverage
    return table


def _generated(
    found: Coverage, curve: CoverageCurve, sizes: Sequence[int]
) -> dict[str, Any] | None:
    """Rows, tokens and C(k) of text that the target wrote; None without any."""
    from vtrim.trimming.analysis import generated_coverage

    if found.generated_counts is None:
        return None
    return {
        "rows": found.generated_rows,
        "tokens": int(found.generated_counts.sum()),
        "coverage": {str(k): generated_coverage(found, curve, k) for k in sizes},
    }


def show(result: dict[str, Any], texts: Mapping[str, str]) -> None:
    """Prints the curve, the sizes that reach round shares, the sources and the forced tokens."""
    common.results.print(_curve_table(result))
    if result["sources"]:
        common.results.print(_source_table(result))
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(result, texts):
        facts.add_row(name, value)
    common.results.print(facts)


def _curve_table(result: dict[str, Any]) -> Table:
    alone = "shard" in result and not result["merged"]
    part = f" in shard {result['shard']} alone" if alone else ""
    table = Table(title=f"Coverage of the reply tokens{part}", title_justify="left")
    table.add_column("draft vocabulary k", justify="right")
    table.add_column("C(k)", justify="right")
    table.add_column("held-out C(k)", justify="right")
    intervals, generated = result["heldout_interval"], result["generated"]
    if intervals:
        table.add_column(f"its {_LEVEL:.0%} interval", justify="right")
    if generated:
        table.add_column("generated C(k)", justify="right")
    for k, share in result["coverage"].items():
        cells = [f"{int(k):,}", _percent(share), _percent(result["heldout_coverage"][k])]
        if intervals:
            cells.append(" - ".join(f"{100 * end:.2f}" for end in intervals[k]))
        if generated:
            cells.append(_percent(generated["coverage"][k]))
        table.add_row(*cells)
    for share, size in result["k_for"].items():
        label = Text(f"smallest k for {float(share):.0%}:", style="bold")
        result_text = "not reached" if size is None else f"{size:,}"
        table.add_row(label, Text(result_text, style="bold"))
    return table


def _source_table(result: dict[str, Any]) -> Table:
    """C(k) of each source under the vocabulary of all data; names go in as Text."""
    from vtrim.chat.visible import visible

    table = Table(title="Coverage by source, one vocabulary for all", title_justify="left")
    table.add_column("source")
    table.add_column("tokens", justify="right")
    sizes = list(next(iter(result["sources"].values()))["coverage"])
    for k in sizes:
        table.add_column(f"C({int(k):,})", justify="right")
    for name, entry in result["sources"].items():
        shares = [_percent(entry["coverage"][k]) for k in sizes]
        table.add_row(Text(visible(name, newline=" ") or "(none)"), f"{entry['tokens']:,}", *shares)
    return table


def _facts(result: dict[str, Any], texts: Mapping[str, str]) -> list[tuple[str, Text]]:
    """Names and values below the table; data goes in as Text, never as markup."""
    skipped = ", ".join(f"{reason} {n:,}" for reason, n in result["rows_skipped"].items())
    forced = ", ".join(
        f"{token} {texts[str(token)]!r}" if str(token) in texts else str(token)
        for token in result["forced"]
    )
    values = {
        "conversations used": f"{result['rows_used']:,} ({result['rows_heldout']:,} held out)",
        "rows skipped": skipped or "none",
        "reply tokens": f"{result['tokens']:,}, {result['distinct']:,} distinct ids "
        f"of {result['target_vocab_size']:,}",
        "forced tokens": forced or "none",
        "written": result["artifact"],
    }
    return [(name, Text(value)) for name, value in values.items()]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"
