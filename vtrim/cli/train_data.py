"""The samples that ``vtrim train-draft`` trains on, read before any model is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vtrim.cli.train_call import TrainCall
from vtrim.errors import InputError
from vtrim.training.mix import check_sources, source_name

if TYPE_CHECKING:
    from vtrim.chat.render import Sample
    from vtrim.chat.skips import SkipLog


def training_samples(call: TrainCall, note: Callable[[str], None]) -> list[Sample]:
    """The run's conversations, rendered as coverage rendered them; says what was skipped.

    Raises:
        MismatchError: the data or the tokenizer are not those that coverage counted.
        InputError: no row has a reply token within the length limit.
        OptionError: ``--mix`` names a source that no sample has.
    """
    from vtrim.chat.render import Renderer
    from vtrim.chat.run_data import run_conversations
    from vtrim.chat.skips import SkipLog

    skipped = SkipLog()
    data, limit = call.manifest["data"], call.resolved.max_length
    if data.get("max_length") not in (None, limit):
        note(f"coverage counted with --max-length {data['max_length']}, training cuts at {limit}")
    renderer = Renderer(
        _tokenizer(call),
        max_length=limit,
        skipped=skipped,
        last_turn_only=bool(data.get("last_turn_only")),
    )
    samples = [
        _kept(sample)
        for conversation in run_conversations(call.run, skipped)
        for sample in renderer.samples(conversation)
    ]
    for line in skipped.lines():
        note(f"skipped rows: {line}")
    if not samples:
        raise InputError(_nothing_left(skipped, limit))
    check_sources(call.mix_weights, [str(one.source) for one in samples if not one.heldout])
    return samples


def _kept(sample: Sample) -> Sample:
    """The sample with the name of its source, and without the tokens that the limit cut off."""
    return replace(
        sample,
        ids=sample.ids.copy(),  # of a view, the whole row would stay in memory
        mask=sample.mask.copy(),
        source=source_name(sample.source, sample.origin.file),
    )


def _tokenizer(call: TrainCall) -> Any:
    """The target's tokenizer, proved to be the one that coverage counted with."""
    from vtrim.evaluation.pairing import TargetSource

    entry = call.manifest["target"]
    return TargetSource(
        name=call.target_name,
        run=call.run,
        entry=entry,
        revision=entry.get("revision"),
        trust_remote_code=bool(entry.get("trust_remote_code")),
        offline=call.offline,
    ).tokenizer


def _nothing_left(skipped: SkipLog, limit: int) -> str:
    why = "; ".join(skipped.lines()) or "the data are empty"
    return f"no row has a reply token within --max-length {limit} ({why}). Raise --max-length."
