"""``vtrim coverage``: how often the target's tokens stand in the replies of chat data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import Run
from vtrim.cli import common
from vtrim.cli import coverage_request as options
from vtrim.cli.coverage_merge import check_any_reply, merge_named
from vtrim.cli.coverage_model import Model, check_keep, load_model
from vtrim.cli.coverage_request import Request, make_request
from vtrim.cli.coverage_shards import merge_when_complete, shard_path
from vtrim.cli.coverage_stale import warn_stale
from vtrim.cli.coverage_steps import count_replies, record_for
from vtrim.cli.coverage_table import result_of, show
from vtrim.errors import OptionError

if TYPE_CHECKING:
    from vtrim.cli.coverage_record import Record
    from vtrim.trimming.coverage import Coverage

_PREVIEWED = 10


def coverage(
    data: options.Data,
    target: common.TargetOption = None,
    tokenizer: options.Tokenizer = None,
    run: common.RunOption = None,
    keep: options.Keep = None,
    split: options.Split = None,
    columns: options.Columns = None,
    source_column: options.SourceColumn = "source",
    max_length: options.MaxLength = None,
    last_turn_only: options.LastTurnOnly = False,
    template: options.Template = None,
    skip_bad_rows: options.SkipBadRows = False,
    generated: options.Generated = None,
    preview: options.Preview = None,
    preview_html: options.PreviewHtml = None,
    processes: options.Processes = None,
    shard: options.ShardText = None,
    merge: options.Merge = False,
    engine: options.Engine = "local",
    encoder: options.Encoder = "auto",
    revision: common.RevisionOption = None,
    trust_remote_code: common.TrustOption = False,
    offline: common.OfflineOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Count the tokens of the replies: what a draft vocabulary has to hold.

    Rows hold `messages`, ShareGPT `conversations`, Alpaca columns, `prompt` and `completion`,
    rendered `text` or recorded `input_ids`. Only assistant replies and the token that ends them
    are counted. Writes coverage.npz into the run folder.

    Example: vtrim coverage chat.jsonl --target meta-llama/Llama-3.1-8B-Instruct

    What is counted, shown: vtrim coverage chat.jsonl --preview 3

    On two machines that share a run folder: vtrim coverage 'data/*.jsonl.gz' --shard 1/2, and
    --shard 2/2; without one: vtrim coverage --merge coverage.1-of-2.npz coverage.2-of-2.npz
    """
    previews = preview is not None or preview_html is not None
    _check_together(
        json_output=json_output and previews,
        merge=merge,
        others={
            "--target": target, "--tokenizer": tokenizer, "--shard": shard,
            "--generated": generated, "--preview": preview, "--preview-html": preview_html,
        },
    )  # fmt: skip
    folder = common.open_run(run)
    if merge:
        found, record = merge_named(data, folder.coverage)
        found.curve(keep or [])  # refuses a wrong id before anything is written
        check_any_reply(found, ", ".join(data))
        _save(folder, found, record)
        _print(folder.coverage, found, record, keep or [], json_output)
        return
    request = make_request(
        data,
        generated or [],
        split=split,
        columns=columns or [],
        source_column=source_column,
        skip_bad_rows=skip_bad_rows,
        max_length=max_length,
        last_turn_only=last_turn_only,
        encoder=encoder,
        processes=processes,
        shard="1/1" if previews else shard,
        engine=engine,
        offline=offline,
    )
    started = time.monotonic()
    with common.loading():
        model = load_model(
            folder, target, tokenizer, template, revision, trust_remote_code, offline
        )
    check_keep(model, keep or [])
    if previews:
        _show_preview(model, request, preview or _PREVIEWED, preview_html)
        return
    _count(folder, model, request, keep or [], json_output, started)


def _check_together(*, json_output: bool, merge: bool, others: dict[str, Any]) -> None:
    """Refuses options that contradict each other.

    Raises:
        OptionError: they do.
    """
    if others["--target"] is not None and others["--tokenizer"] is not None:
        raise OptionError("--target and --tokenizer: give one; a target has its own tokenizer.")
    if json_output:
        raise OptionError("--json and --preview: a preview is no JSON; leave one out.")
    for name, value in others.items() if merge else ():
        if value is not None:
            raise OptionError(f"--merge adds up finished counts; {name} does not go with it.")


def _count(
    run: Run, model: Model, request: Request, keep: list[int], json_output: bool, started: float
) -> None:
    """Counts, saves, and prints what was counted; of a shard, all of it once it is complete."""
    shard = request.reading.options.shard
    if shard is not None:
        common.speak_for_itself()
    artifact = run.coverage if shard is None else shard_path(run, shard)
    counted = count_replies(model, request)
    found, seconds = counted.coverage, time.monotonic() - started
    record = record_for(model, request, counted, artifact, seconds, keep)
    if shard is None:
        _save(run, found, record)
        _print(artifact, found, record, keep, json_output)
        return
    record.save_beside(artifact, found)
    whole = merge_when_complete(run, shard, found, record)
    if whole is not None:
        artifact, (found, record) = run.coverage, whole
        _save(run, found, record)
    _print(artifact, found, record, keep, json_output, shard=str(shard), merged=whole is not None)


def _save(run: Run, found: Coverage, record: Record) -> None:
    """Writes the run's counts; says what in it is of others."""
    record.save(run, found)
    warn_stale(run, found)


def _print(
    artifact: Path,
    found: Coverage,
    record: Record,
    keep: Sequence[int],
    json_output: bool,
    **more: Any,
) -> None:
    """The table, or the object of --json."""
    result = {**result_of(found, found.curve(keep), record), **more, "artifact": str(artifact)}
    if json_output:
        common.emit_json(result)
    else:
        show(result, record.texts)


def _show_preview(model: Model, request: Request, limit: int, html: Path | None) -> None:
    """The first conversations with the counted tokens marked; writes no artefact."""
    from vtrim.chat.read import read_conversations
    from vtrim.chat.render import Renderer
    from vtrim.chat.skips import SkipLog
    from vtrim.cli.coverage_preview import show_preview

    reading, skipped = request.reading, SkipLog()
    renderer = Renderer(
        model.tokenizer,
        max_length=reading.max_length,
        last_turn_only=reading.last_turn_only,
        skipped=skipped,
    )
    rows = read_conversations(request.sources, options=reading.options, skipped=skipped)
    show_preview(renderer, rows, limit, html)
    for line in skipped.lines():
        common.warn(f"rows skipped, {line}")
    common.note("a preview only: nothing was counted (leave out --preview to count).")
