"""``vtrim coverage``: how often the target's tokens stand in the replies of chat data."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtrim.artifacts import Run, write_json, write_text
from vtrim.cli import common
from vtrim.cli.coverage_steps import (
    Counted,
    Model,
    check_keep,
    count_replies,
    describe,
    load_model,
)
from vtrim.cli.coverage_table import round_sizes, show
from vtrim.errors import OptionError

if TYPE_CHECKING:
    from vtrim.trimming.coverage import CoverageCurve

SHARES = ("0.90", "0.95", "0.99")


def coverage(
    data: Annotated[
        list[Path], typer.Argument(metavar="DATA...", help="Chat files: JSONL or JSON, also gzip.")
    ],
    target: common.TargetOption = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Count with this tokenizer alone; `search` then wants --target."),
    ] = None,
    run: common.RunOption = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Cut longer sequences, as training will (tokens).")
    ] = None,
    keep: Annotated[
        list[int] | None, typer.Option(help="Token id to seat first in the table; repeatable.")
    ] = None,
    template: Annotated[
        Path | None, typer.Option(help="Jinja chat template in place of the tokenizer's own.")
    ] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Count unreadable lines instead of stopping.")
    ] = False,
    revision: common.RevisionOption = None,
    trust_remote_code: common.TrustOption = False,
    offline: common.OfflineOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Count the tokens of the replies: what a draft vocabulary has to hold.

    Rows hold `messages` or ShareGPT `conversations`; only assistant replies and the token that
    ends them are counted. Writes coverage.npz into the run folder.

    Example: vtrim coverage chat.jsonl --target meta-llama/Llama-3.1-8B-Instruct
    """
    if target is not None and tokenizer is not None:
        raise OptionError("--target and --tokenizer: give one; a target has its own tokenizer.")
    folder = common.open_run(run)
    started = time.monotonic()
    files = describe(data)
    model = load_model(folder, target, tokenizer, template, revision, trust_remote_code, offline)
    check_keep(model, keep or [])
    counted = count_replies(model, files, max_length=max_length, skip_bad_rows=skip_bad_rows)
    curve = counted.coverage.curve(keep or [])
    _save(folder, model, counted, max_length, skip_bad_rows, time.monotonic() - started)
    result = _result(folder, counted, curve)
    if json_output:
        common.emit_json(result)
    else:
        show(result, model.tokenizer)


def _save(
    run: Run,
    model: Model,
    counted: Counted,
    max_length: int | None,
    skip_bad_rows: bool,
    seconds: float,
) -> None:
    """Writes the artefact first, then what it was made from."""
    from vtrim.chat.conversation import HELDOUT_PERCENT

    counted.coverage.save(run.coverage)
    if model.config is not None:
        write_json(run.target_config, model.config)
    template = run.target_config.with_name("chat_template.jinja")
    if model.template is not None:
        write_text(template, model.template)
    else:
        template.unlink(missing_ok=True)
    data = {
        "files": counted.files,
        "max_length": max_length,
        "rows_used": counted.coverage.rows_used,
        "skip_bad_rows": skip_bad_rows,
        "heldout_percent": HELDOUT_PERCENT,
    }
    run.update(target=model.entry, data=data)
    entry = {
        "tokens": counted.coverage.total,
        "distinct": counted.coverage.distinct,
        "rows_used": counted.coverage.rows_used,
        "rows_heldout": counted.coverage.rows_heldout,
        "rows_skipped": dict(counted.coverage.rows_skipped),
        "straddling": counted.feed.renderer.straddling,
        "data_fingerprint": counted.coverage.data_fingerprint,
        "coverage_fingerprint": counted.coverage.fingerprint,
        "seconds": round(seconds, 3),
        "artifact": str(run.coverage),
    }
    run.record("coverage", entry)


def _result(run: Run, counted: Counted, curve: CoverageCurve) -> dict[str, Any]:
    """The object that --json prints."""
    found = counted.coverage
    sizes = round_sizes(curve)
    return {
        "rows_used": found.rows_used,
        "rows_heldout": found.rows_heldout,
        "rows_skipped": dict(found.rows_skipped),
        "rows_by_kind": dict(sorted(counted.feed.kinds.items())),
        "tokens": found.total,
        "distinct": found.distinct,
        "straddling": counted.feed.renderer.straddling,
        "target_vocab_size": found.target_vocab_size,
        "coverage": {str(k): curve.coverage(k) for k in sizes},
        "heldout_coverage": {str(k): curve.heldout_coverage(k) for k in sizes},
        "k_for": {share: curve.smallest_k(share) for share in SHARES},
        "forced": curve.forced,
        "artifact": str(run.coverage),
    }
