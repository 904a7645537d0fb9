"""``vtrim coverage``: how often the target's tokens stand in the replies of chat data."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtrim.artifacts import Run, fingerprint_file, fingerprint_json, write_json, write_text
from vtrim.cli import common
from vtrim.cli.coverage_table import round_sizes, show
from vtrim.errors import InputError, OptionError

if TYPE_CHECKING:
    from vtrim.chat.feed import ReplyFeed
    from vtrim.chat.skips import SkipLog
    from vtrim.trimming.coverage import Coverage, CoverageCurve

DEFAULT_TARGET = "smollm2"
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
    files = _describe(data)
    model = _load_model(folder, target, tokenizer, template, revision, trust_remote_code, offline)
    counted = _count(model, files, max_length=max_length, skip_bad_rows=skip_bad_rows)
    curve = counted.coverage.curve(keep or [])
    _save(folder, model, counted, max_length, skip_bad_rows, time.monotonic() - started)
    result = _result(folder, counted, curve)
    if json_output:
        common.emit_json(result)
    else:
        show(result, model.tokenizer)


@dataclass(frozen=True, kw_only=True)
class _Model:
    """The target, or a tokenizer alone (name None), and what run.json says of it."""

    tokenizer: Any
    entry: dict[str, Any]
    config: dict[str, Any] | None
    template: str | None


@dataclass(frozen=True, kw_only=True)
class _Counted:
    coverage: Coverage
    files: list[dict[str, Any]]
    feed: ReplyFeed
    skipped: SkipLog


def _describe(paths: list[Path]) -> list[dict[str, Any]]:
    """Path, size and content fingerprint of each data file."""
    described = []
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file.")
        if path.is_dir():
            raise InputError(f"{path}: is a folder. Name the chat files in it.")
        described.append(
            {
                "path": str(path.resolve()),
                "bytes": path.stat().st_size,
                "fingerprint": fingerprint_file(path),
            }
        )
    return described


def _load_model(
    run: Run,
    target: str | None,
    tokenizer_name: str | None,
    template: Path | None,
    revision: str | None,
    trust_remote_code: bool,
    offline: bool,
) -> _Model:
    from vtrim.chat.stops import stop_ids
    from vtrim.models import hub

    name = None if tokenizer_name is not None else _target_name(run, target)
    source = name or str(tokenizer_name)
    common.hush_libraries()
    tokenizer = hub.load_tokenizer(
        source, revision=revision, trust_remote_code=trust_remote_code, offline=offline
    )
    if template is not None:
        tokenizer.chat_template = _read_template(template)
    config = None
    if name is not None:
        config = hub.load_config(
            name, revision=revision, trust_remote_code=trust_remote_code, offline=offline
        )
    generation = hub.load_generation_config(source, revision=revision, offline=offline)
    rows = _head_rows(config) if config is not None else len(tokenizer)
    stops = [token for token in stop_ids(tokenizer, generation, config or {}) if token < rows]
    entry = {
        "name": name,
        "tokenizer": tokenizer_name,
        "revision": revision,
        "tokenizer_fingerprint": hub.tokenizer_fingerprint(tokenizer),
        "config_fingerprint": fingerprint_json(config) if config is not None else None,
        "vocab_size": rows,
        "tokenizer_length": len(tokenizer),
        "stop_ids": stops,
        "trust_remote_code": trust_remote_code,
        "chat_template": str(template) if template is not None else None,
    }
    return _Model(
        tokenizer=tokenizer,
        entry=entry,
        config=config,
        template=tokenizer.chat_template if template is not None else None,
    )


def _target_name(run: Run, target: str | None) -> str:
    """The target that was typed, else the run's, else the built-in one; says which."""
    if target is not None:
        return target
    known: str | None = run.read().get("target", {}).get("name")
    if known is not None:
        common.note(f"target {known} (from {run.manifest}; --target names another).")
        return known
    common.note(f"no --target given: counting for the built-in {DEFAULT_TARGET}.")
    return DEFAULT_TARGET


def _read_template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--template {path}: cannot be read ({error}).") from error


def _head_rows(config: dict[str, Any]) -> int:
    size = (config.get("text_config") or config).get("vocab_size")
    if not isinstance(size, int) or size < 1:
        raise InputError("the target's config.json names no vocab_size.")
    return size


def _count(
    model: _Model, files: list[dict[str, Any]], *, max_length: int | None, skip_bad_rows: bool
) -> _Counted:
    from vtrim.chat.feed import FastPathDiffers
    from vtrim.trimming.coverage import Coverage

    try:
        feed, counts, heldout = _tally(model, files, max_length, skip_bad_rows, full=False)
    except FastPathDiffers as error:
        common.note(f"{error}: counted by segments it differs; counting again by full renders.")
        feed, counts, heldout = _tally(model, files, max_length, skip_bad_rows, full=True)
    skipped = feed.renderer.skipped
    content = int(counts.sum()) - int(counts[model.entry["stop_ids"]].sum())
    if not content:
        names = ", ".join(file["path"] for file in files)
        why = "; ".join([f"{feed.rows_used:,} rows with an empty reply", *skipped.lines()])
        raise InputError(f"no assistant tokens in {names} ({why}). Check roles and --max-length.")
    _report(feed, skipped)
    artefact = Coverage(
        counts=counts,
        heldout_counts=heldout,
        target_vocab_size=model.entry["vocab_size"],
        tokenizer_length=len(model.tokenizer),
        tokenizer_fingerprint=model.entry["tokenizer_fingerprint"],
        data_fingerprint="+".join(sorted(file["fingerprint"] for file in files)),
        stop_ids=tuple(model.entry["stop_ids"]),
        rows_used=feed.rows_used,
        rows_skipped=dict(skipped.counts),
        rows_heldout=feed.rows_heldout,
    )
    return _Counted(coverage=artefact, files=files, feed=feed, skipped=skipped)


def _tally(
    model: _Model,
    files: list[dict[str, Any]],
    max_length: int | None,
    skip_bad_rows: bool,
    *,
    full: bool,
) -> tuple[ReplyFeed, Any, Any]:
    """The feed with its tallies, and the counts of all rows and of the held-out ones."""
    from vtrim.chat.feed import ReplyFeed
    from vtrim.chat.read import read_conversations
    from vtrim.chat.render import Renderer
    from vtrim.chat.skips import SkipLog
    from vtrim.trimming.count import count

    skipped = SkipLog()
    renderer = Renderer(model.tokenizer, max_length=max_length, skipped=skipped)
    feed = ReplyFeed(renderer, full=full)
    with common.progress("counting", sum(file["bytes"] for file in files)) as advance:
        started = time.monotonic()

        def tell(size: int) -> None:
            rate = feed.kinds.total() / max(time.monotonic() - started, 1e-9)
            advance(size, f"counting ({rate:,.0f} rows/s)")

        rows = read_conversations(
            [file["path"] for file in files],
            skip_bad_rows=skip_bad_rows,
            skipped=skipped,
            advance=tell,
        )
        counts, heldout = count(feed.feed(rows), model.entry["vocab_size"])
    return feed, counts, heldout


def _report(feed: ReplyFeed, skipped: SkipLog) -> None:
    """What was read, skipped, cut and straddled, in lines on stderr."""
    kinds = ", ".join(f"{kind} {number:,}" for kind, number in sorted(feed.kinds.items()))
    common.note(f"{feed.rows_used + skipped.total:,} rows: {kinds}")
    if feed.rows_checked:
        common.note(
            f"{feed.rows_fast:,} rows counted by segments; {feed.rows_checked:,} of them checked "
            "against the full render, all equal"
        )
    for line in skipped.lines():
        common.warn(f"rows skipped, {line}")
    if feed.renderer.cut_replies:
        common.warn(f"{feed.renderer.cut_replies:,} replies lie wholly beyond --max-length.")
    if feed.renderer.straddling:
        common.warn(
            f"{feed.renderer.straddling:,} tokens reach from the prompt into a reply; "
            "they are not counted."
        )


def _save(
    run: Run,
    model: _Model,
    counted: _Counted,
    max_length: int | None,
    skip_bad_rows: bool,
    seconds: float,
) -> None:
    """Writes the artefact first, then what it was made from."""
    from vtrim.chat.conversation import HELDOUT_PERCENT

    counted.coverage.save(run.coverage)
    if model.config is not None:
        write_json(run.target_config, model.config)
    if model.template is not None:
        write_text(run.target_config.with_name("chat_template.jinja"), model.template)
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


def _result(run: Run, counted: _Counted, curve: CoverageCurve) -> dict[str, Any]:
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
