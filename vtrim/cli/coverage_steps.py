"""The steps of ``vtrim coverage``: files, target, counts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import Run, fingerprint_file, fingerprint_json
from vtrim.cli import common
from vtrim.errors import InputError, OptionError

if TYPE_CHECKING:
    from vtrim.chat.feed import ReplyFeed
    from vtrim.chat.skips import SkipLog
    from vtrim.trimming.count import Tally
    from vtrim.trimming.coverage import Coverage

DEFAULT_TARGET = "smollm2"


@dataclass(frozen=True, kw_only=True)
class Model:
    """The target, or a tokenizer alone (name None), and what run.json says of it."""

    tokenizer: Any
    entry: dict[str, Any]
    config: dict[str, Any] | None
    template: str | None


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The artefact, the files it was counted on, and the feed with its tallies."""

    coverage: Coverage
    files: list[dict[str, Any]]
    feed: ReplyFeed


def describe(paths: list[Path]) -> list[dict[str, Any]]:
    """Path, size [bytes] and content fingerprint of each data file.

    Raises:
        InputError: one is missing or is a folder.
    """
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


def load_model(
    run: Run,
    target: str | None,
    tokenizer_name: str | None,
    template: Path | None,
    revision: str | None,
    trust_remote_code: bool,
    offline: bool,
) -> Model:
    """The tokenizer, and the config of the target unless ``tokenizer_name`` stands alone.

    Raises:
        InputError: one of them cannot be loaded.
    """
    from vtrim.chat.stops import stop_ids
    from vtrim.models import hub

    name = None if tokenizer_name is not None else _target_name(run, target)
    source = name or str(tokenizer_name)
    common.hush_libraries()
    tokenizer = hub.load_tokenizer(
        source, revision=revision, trust_remote_code=trust_remote_code, offline=offline
    )
    if template is not None:
        tokenizer.chat_template = common.read_template(template)
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
    return Model(
        tokenizer=tokenizer,
        entry=entry,
        config=config,
        template=tokenizer.chat_template if template is not None else None,
    )


def _target_name(run: Run, target: str | None) -> str:
    """The target that was typed, else the run's, else the built-in one; says which."""
    from vtrim.models.hub import is_local

    if target is not None:
        return str(Path(target).resolve()) if is_local(target) else target
    known: str | None = run.read().get("target", {}).get("name")
    if known is not None:
        common.note(f"target {known} (from {run.manifest}; --target names another).")
        return known
    common.note(f"no --target given: counting for the built-in {DEFAULT_TARGET}.")
    return DEFAULT_TARGET


def _head_rows(config: dict[str, Any]) -> int:
    size = (config.get("text_config") or config).get("vocab_size")
    if not isinstance(size, int) or size < 1:
        raise InputError("the target's config.json names no vocab_size.")
    return size


def check_keep(model: Model, keep: list[int]) -> None:
    """Refuses ids that no draft vocabulary can hold, before any row is read.

    Raises:
        OptionError: an id beyond the tokenizer or the target's head.
    """
    limit = min(model.entry["tokenizer_length"], model.entry["vocab_size"])
    for token in keep:
        if not 0 <= token < limit:
            raise OptionError(f"--keep {token}: not a token id; ids run from 0 to {limit - 1}.")


def count_replies(
    model: Model, files: list[dict[str, Any]], *, max_length: int | None, skip_bad_rows: bool
) -> Counted:
    """Counts the replies of all files, by full renders should the fast path differ.

    Raises:
        InputError: a file cannot be read, or no reply has any content.
    """
    from vtrim.chat.feed import FastPathDiffers
    from vtrim.trimming.coverage import Coverage

    try:
        feed, tally = _tally(model, files, max_length, skip_bad_rows, full=False)
    except FastPathDiffers as error:
        common.note(f"{error}: counted by segments it differs; counting again by full renders.")
        feed, tally = _tally(model, files, max_length, skip_bad_rows, full=True)
    counts = tally.counts
    skipped = feed.renderer.skipped
    content = int(counts.sum()) - int(counts[model.entry["stop_ids"]].sum())
    if not content:
        names = ", ".join(file["path"] for file in files)
        why = "; ".join([f"{feed.rows_used:,} rows with an empty reply", *skipped.lines()])
        raise InputError(f"no assistant tokens in {names} ({why}). Check roles and --max-length.")
    _report(feed, skipped)
    artefact = Coverage(
        counts=counts,
        heldout_counts=tally.heldout_counts,
        by_source=tally.by_source,
        sample=tally.sample.build(),
        rows_by_kind=dict(feed.kinds),
        straddling=feed.renderer.straddling,
        target_vocab_size=model.entry["vocab_size"],
        tokenizer_length=len(model.tokenizer),
        tokenizer_fingerprint=model.entry["tokenizer_fingerprint"],
        data_fingerprint="+".join(sorted(file["fingerprint"] for file in files)),
        stop_ids=tuple(model.entry["stop_ids"]),
        rows_used=feed.rows_used,
        rows_skipped=dict(skipped.counts),
        rows_heldout=feed.rows_heldout,
    )
    return Counted(coverage=artefact, files=files, feed=feed)


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


def _tally(
    model: Model,
    files: list[dict[str, Any]],
    max_length: int | None,
    skip_bad_rows: bool,
    *,
    full: bool,
) -> tuple[ReplyFeed, Tally]:
    """The feed with its tallies, and the counts."""
    from vtrim.chat.feed import ReplyFeed
    from vtrim.chat.read import read_conversations
    from vtrim.chat.render import Renderer
    from vtrim.chat.skips import SkipLog
    from vtrim.trimming.count import Tally

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
        tally = Tally(model.entry["vocab_size"]).update(feed.feed(rows))
    return feed, tally
