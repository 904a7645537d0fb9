"""``vtrim flops``: what one draft token costs, by component."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from vtrim.cli import common
from vtrim.errors import OptionError

if TYPE_CHECKING:
    from vtrim.flops.cost import DraftStep
    from vtrim.shape import DraftShape


def flops(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A config.json, a model folder, a hub id or smollm2. "
            "(default: the run's target, else smollm2)",
            show_default=False,
        ),
    ] = None,
    draft_vocab_size: Annotated[
        int | None,
        typer.Option("--draft-vocab-size", "-k", help="Rows of its LM head. (default: all)"),
    ] = None,
    context: Annotated[
        int, typer.Option("--context", help="Cached tokens: adds the attention scores.")
    ] = 0,
    recursive: Annotated[
        bool, typer.Option("--recursive", help="A draft step after the first: fc does not run.")
    ] = False,
    tokens: Annotated[
        int, typer.Option("--tokens", help="Tokens of one sequence in one draft step.")
    ] = 1,
    run: common.RunOption = None,
    revision: common.RevisionOption = None,
    trust_remote_code: common.TrustOption = False,
    offline: common.OfflineOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Count what one EAGLE-3 draft token costs, and what a smaller vocabulary saves.

    Matrix products only, a multiply-add as 2 FLOPs; bytes are 16-bit weights read once.
    """
    from vtrim.cli.target_config import ModelSource
    from vtrim.flops.cost import DraftStep
    from vtrim.shape import DraftShape

    _at_least("--context", context, 0)
    _at_least("--tokens", tokens, 1)
    source = ModelSource(
        name=model or _default_model(run),
        revision=revision,
        trust_remote_code=trust_remote_code,
        offline=offline,
    )
    shape = DraftShape.from_target_config(source.config())
    vocab = shape.target_vocab_size if draft_vocab_size is None else draft_vocab_size
    if not 1 <= vocab <= shape.target_vocab_size:
        raise OptionError(
            f"--draft-vocab-size {vocab}: must lie between 1 and the {shape.target_vocab_size} "
            "rows of the target's LM head."
        )
    step = DraftStep(recursive=recursive, context=context, num_tokens=tokens)
    result = _costs(shape, vocab, step)
    if json_output:
        common.emit_json({"model": source.name, **result})
    else:
        common.results.print(_table(result))
        common.results.print(_saving(result), markup=False, soft_wrap=True)


def _default_model(run: Path | None) -> str:
    """The config that coverage copied into the run, else the built-in target."""
    config = common.open_run(run).target_config
    if config.exists():
        return str(config)
    common.note("no model named and no run folder here: smollm2, the built-in demo target.")
    return "smollm2"


def _at_least(option: str, value: int, least: int) -> None:
    if value < least:
        raise OptionError(f"{option} {value}: must be at least {least}.")


def _costs(shape: DraftShape, vocab: int, step: DraftStep) -> dict[str, Any]:
    """The fields of ``--json``."""
    from vtrim.flops.cost import draft_bytes, draft_flops

    cost, full = draft_flops(shape, vocab, step), draft_flops(shape, None, step)
    moved = draft_bytes(shape, vocab, step)
    return {
        "components": cost.components,
        "total": cost.total,
        "lm_head_share": cost.lm_head_share,
        "draft_vocab_size": vocab,
        "target_vocab_size": shape.target_vocab_size,
        "full_total": full.total,
        "flops_reduction": 1 - cost.total / full.total,
        "bytes": moved.components,
        "bytes_total": moved.total,
        "recursive": step.recursive,
        "context": step.context,
        "tokens": step.num_tokens,
    }


def _table(result: dict[str, Any]) -> Table:
    table = Table(title=f"One draft step, {result['draft_vocab_size']:,} rows in the LM head")
    table.add_column("component")
    for name in ("FLOPs", "share", "bytes read", "share"):
        table.add_column(name, justify="right")
    total, moved = result["total"], result["bytes_total"]
    for name, flops_count in result["components"].items():
        byte_count = result["bytes"][name]
        table.add_row(
            name.replace("_", " "),
            f"{flops_count:,}",
            f"{flops_count / total:.2%}",
            f"{byte_count:,}",
            f"{byte_count / moved:.2%}",
        )
    table.add_section()
    table.add_row("total", f"{total:,}", "", f"{moved:,}", "")
    return table


def _saving(result: dict[str, Any]) -> str:
    if result["draft_vocab_size"] == result["target_vocab_size"]:
        return "The whole target vocabulary. See a trimmed one with --draft-vocab-size K."
    return (
        f"{result['flops_reduction']:.2%} fewer FLOPs than with all "
        f"{result['target_vocab_size']:,} rows ({result['full_total']:,})."
    )
