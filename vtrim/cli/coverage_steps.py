"""The steps of ``vtrim coverage``: counts, what is said of them and what is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.cli import common
from vtrim.cli.coverage_engine import Job, count_all
from vtrim.cli.coverage_merge import check_any_reply
from vtrim.cli.coverage_model import Model
from vtrim.cli.coverage_part import Facts, Part
from vtrim.cli.coverage_record import Record, step_entry, token_texts
from vtrim.cli.coverage_request import Request
from vtrim.errors import InputError

if TYPE_CHECKING:
    from vtrim.chat.read import Shard
    from vtrim.trimming.coverage import Coverage


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The counts, how they were made, and their data as run.json describes it."""

    coverage: Coverage
    facts: Facts
    files: list[dict[str, Any]]
    generated: list[dict[str, Any]]
    processes: int | None


def count_replies(model: Model, request: Request) -> Counted:
    """Counts the replies of all sources, or those of this process's shard.

    Raises:
        InputError: a source cannot be read, or no reply has any content.
    """
    files = [source.describe() for source in request.sources]
    generated = [source.describe() for source in request.generated]
    job = Job(
        tokenizer=model.tokenizer,
        spec=model.spec,
        blank=model.blank,
        sources=request.sources,
        generated=request.generated,
        reading=request.reading,
        processes=request.processes,
        engine=request.engine,
    )
    part = count_all(job)
    shard = request.reading.options.shard
    if shard is None:
        _check_any(part, files, generated)
    _report(part)
    coverage = replace(
        part.coverage,
        data_fingerprint=_data_fingerprint(files, shard),
        generated_fingerprint=_data_fingerprint(generated, shard),
    )
    return Counted(
        coverage=coverage,
        facts=part.facts,
        files=files,
        generated=generated,
        processes=job.num_processes if job.engine == "local" else job.processes,
    )


def record_for(
    model: Model,
    request: Request,
    counted: Counted,
    artifact: Path,
    seconds: float,
    keep: Sequence[int],
) -> Record:
    """What a run folder says about these counts. keep: ids to be named beside the counted ones."""
    from vtrim.chat.conversation import HELDOUT_PERCENT

    coverage = counted.coverage
    seen = (coverage.counts > 0).nonzero()[0].tolist()
    data = {
        "files": counted.files,
        "generated": counted.generated,
        **request.reading.entry(),
        "rows_used": coverage.rows_used,
        "heldout_percent": HELDOUT_PERCENT,
    }
    how = {
        "seconds": round(seconds, 3),
        "encoder": "+".join(sorted(counted.facts.encoders)),
        "engine": request.engine,
        "processes": counted.processes,
    }
    return Record(
        target=model.entry,
        data=data,
        step=step_entry(coverage, artifact, **how),
        config=model.config,
        template=model.template,
        texts=token_texts(model.tokenizer, [*seen, *coverage.stop_ids, *keep]),
    )


def _data_fingerprint(files: Iterable[dict[str, Any]], shard: Shard | None) -> str:
    from vtrim.trimming.parts import join_parts, shard_part

    place = (shard.index, shard.count) if shard is not None else None
    return join_parts([shard_part(file["fingerprint"], place) for file in files])


def _check_any(
    part: Part, files: Sequence[dict[str, Any]], generated: Sequence[dict[str, Any]]
) -> None:
    """Refuses data without any reply.

    Raises:
        InputError: there is no reply token.
    """
    found, log = part.coverage, part.facts.skipped
    why = [f"{found.rows_used:,} rows with an empty reply", *log.lines()]
    check_any_reply(found, ", ".join(file["path"] for file in files), "; ".join(why))
    if generated and found.generated_counts is not None and not found.generated_counts.any():
        reasons = "; ".join(part.facts.generated_skipped.lines()) or "no reply"
        names = ", ".join(file["path"] for file in generated)
        raise InputError(f"--generated: no assistant tokens in {names} ({reasons}).")


def _how_counted(found: Coverage, facts: Facts) -> str:
    """By which way the used rows were counted, and how many by both."""
    others = found.rows_used - facts.rows_fast
    way = "rendered whole" + (" or recorded as ids" if "recorded" in found.rows_by_kind else "")
    whole = f"the other {others:,} {way}; " if others else ""
    return (
        f"{facts.rows_fast:,} rows counted by segments, {facts.rows_checked:,} of them checked "
        f"against the full render, all equal; {whole}encoder: {', '.join(sorted(facts.encoders))}"
    )


def _report(part: Part) -> None:
    """What was read, skipped, cut and straddled, in lines on stderr."""
    found, facts = part.coverage, part.facts
    kinds = ", ".join(f"{kind} {number:,}" for kind, number in sorted(found.rows_by_kind.items()))
    read = sum(found.rows_by_kind.values())
    common.note(f"{read:,} rows{f': {kinds}' if kinds else ''}")
    if found.by_source is None:
        common.note("more than 32 sources: not told apart (--source-column names the column).")
    if found.generated_counts is not None:
        common.note(
            f"{found.generated_rows:,} generated rows: {int(found.generated_counts.sum()):,} "
            "tokens, counted apart"
        )
    if facts.rows_checked:
        common.note(_how_counted(found, facts))
    for line in sorted(facts.encoder_notes):
        common.note(line)
    for line in facts.skipped.lines():
        common.warn(f"rows skipped, {line}")
    for line in facts.generated_skipped.lines():
        common.warn(f"generated rows skipped, {line}")
    if facts.cut_replies:
        common.warn(f"{facts.cut_replies:,} replies lie wholly beyond --max-length.")
    if facts.reasoning_dropped:
        common.warn(
            f"{facts.reasoning_dropped:,} rows hold reasoning that the template does not write; "
            "it is not counted."
        )
    if facts.empty_replies:
        common.warn(
            f"{facts.empty_replies:,} replies are empty: of each, only the end of turn is counted."
        )
    if facts.parts_left_out:
        common.warn(
            f"{facts.parts_left_out:,} parts of turns hold no text (images and the like); they are "
            "left out."
        )
    if found.straddling:
        common.warn(
            f"{found.straddling:,} tokens reach from the prompt into a reply; they are not counted."
        )
