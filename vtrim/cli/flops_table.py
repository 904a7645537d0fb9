"""The cost of one draft step by component, as JSON values and as a table."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from vtrim.cli import common
from vtrim.flops.cost import DraftStep, draft_bytes, draft_flops
from vtrim.shape import DraftShape


def costs(shape: DraftShape, vocab: int, step: DraftStep) -> dict[str, Any]:
    """The fields of ``--json``."""
    cost, full = draft_flops(shape, vocab, step), draft_flops(shape, None, step)
    moved = draft_bytes(shape, vocab, step)
    return {
        "components": cost.components,
        "total": cost.total,
        "lm_head_share": cost.lm_head_share,
        "draft_vocab_size": vocab,
        "target_vocab_size": shape.target_vocab_size,
        "full_components": full.components,
        "full_total": full.total,
        "flops_reduction": 1 - cost.total / full.total,
        "bytes": moved.components,
        "bytes_total": moved.total,
        "recursive": step.recursive,
        "context": step.context,
        "tokens": step.num_tokens,
    }


def print_costs(result: dict[str, Any]) -> None:
    """Prints the components and what a trimmed head saves, on stdout."""
    common.results.print(_table(result))
    common.results.print(_saving(result), markup=False, soft_wrap=True)


def _table(result: dict[str, Any]) -> Table:
    """Components by FLOPs and bytes; where the head is trimmed, the whole one beside it."""
    vocab, rows = result["draft_vocab_size"], result["target_vocab_size"]
    trimmed = vocab != rows
    table = Table(title=f"One draft step, {vocab:,} rows in the LM head")
    table.add_column("component")
    for name in ("FLOPs", "share", "bytes read", "share"):
        table.add_column(name, justify="right")
    if trimmed:
        table.add_column(f"FLOPs, {rows:,} rows", justify="right")
    total, moved = result["total"], result["bytes_total"]
    for name, flops_count in result["components"].items():
        byte_count = result["bytes"][name]
        cells = [
            name.replace("_", " "),
            f"{flops_count:,}",
            f"{flops_count / total:.2%}",
            f"{byte_count:,}",
            f"{byte_count / moved:.2%}",
        ]
        table.add_row(*cells, *([f"{result['full_components'][name]:,}"] if trimmed else []))
    table.add_section()
    last = [f"{result['full_total']:,}"] if trimmed else []
    table.add_row("total", f"{total:,}", "", f"{moved:,}", "", *last)
    return table


def _saving(result: dict[str, Any]) -> str:
    """What the trimmed head saves, in a sentence."""
    if result["draft_vocab_size"] == result["target_vocab_size"]:
        return "The whole target vocabulary. See a trimmed one with --draft-vocab-size K."
    return (
        f"{result['flops_reduction']:.2%} fewer FLOPs than with all "
        f"{result['target_vocab_size']:,} rows ({result['full_total']:,})."
    )
