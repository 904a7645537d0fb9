"""The tables of ``vtrim coverage``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from vtrim.cli import common

if TYPE_CHECKING:
    from vtrim.trimming.coverage import CoverageCurve

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


def show(result: dict[str, Any], tokenizer: Any) -> None:
    """Prints the curve, the sizes that reach round shares and the forced tokens."""
    table = Table(title="Coverage of the reply tokens", title_justify="left")
    table.add_column("draft vocabulary k", justify="right")
    table.add_column("C(k)", justify="right")
    table.add_column("held-out C(k)", justify="right")
    for k, share in result["coverage"].items():
        table.add_row(f"{int(k):,}", _percent(share), _percent(result["heldout_coverage"][k]))
    for share, size in result["k_for"].items():
        label = Text(f"smallest k for {float(share):.0%}:", style="bold")
        table.caption_justify = "left"
        result_text = "not reached" if size is None else f"{size:,}"
        table.add_row(label, Text(result_text, style="bold"), "")
    common.results.print(table)
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(result, tokenizer):
        facts.add_row(name, value)
    common.results.print(facts)


def _facts(result: dict[str, Any], tokenizer: Any) -> list[tuple[str, Text]]:
    """Names and values below the table; data goes in as Text, never as markup."""
    skipped = ", ".join(f"{reason} {n:,}" for reason, n in result["rows_skipped"].items())
    forced = ", ".join(f"{token} {_shown(tokenizer, token)}" for token in result["forced"])
    values = {
        "rows used": f"{result['rows_used']:,} ({result['rows_heldout']:,} held out)",
        "rows skipped": skipped or "none",
        "reply tokens": f"{result['tokens']:,}, {result['distinct']:,} distinct ids "
        f"of {result['target_vocab_size']:,}",
        "forced tokens": forced or "none",
        "written": result["artifact"],
    }
    return [(name, Text(value)) for name, value in values.items()]


def _shown(tokenizer: Any, token: int) -> str:
    """The token's text with invisible characters escaped."""
    return repr(tokenizer.decode([token]))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"
