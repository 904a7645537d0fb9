"""What ``vtrim eval`` does between parsing and printing: check, load, measure, write."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vtrim.cli import common
from vtrim.cli.eval_call import EvalCall
from vtrim.cli.eval_record import provenance, resolved, write
from vtrim.errors import InputError
from vtrim.vocab import DraftVocab

if TYPE_CHECKING:
    from vtrim.chat.skips import SkipLog
    from vtrim.decoding.engine import Engine
    from vtrim.decoding.generation import GenerationSettings
    from vtrim.decoding.protocol import Drafter
    from vtrim.evaluation.pairing import Decoder, TargetSource
    from vtrim.evaluation.prompts import Prompt
    from vtrim.models.target import Target

DEFAULT_TARGET = "smollm2"


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What one call decodes with, and the prompts it decodes; ``provenance`` names it all.

    call: the options that are carried out: a chain's where a tree's could not be.
    """

    call: EvalCall
    engine: Engine
    prompts: list[Prompt]
    skipped: SkipLog
    settings: GenerationSettings
    provenance: dict[str, Any]


def run_eval(call: EvalCall) -> dict[str, Any]:
    """Measures and writes eval/NAME.json; the numbers to print."""
    started = time.monotonic()
    loaded = load(call)
    from vtrim.evaluation.measure import measure, num_generations, warnings_of

    artifact, call = call.artifact, loaded.call
    target, settings = loaded.engine.target, loaded.settings
    rule, observer = call.make_acceptor(), call.make_observer()
    total = num_generations(len(loaded.prompts), rule, observed=observer is not None)
    with common.progress("decoding", total) as advance:
        measured = measure(
            loaded.engine,
            loaded.prompts,
            settings,
            call.make_acceptor,
            advance,
            batch_size=call.batch_size,
            observer=observer,
        )
    numbers = measured.result()
    for line in warnings_of(numbers):
        common.warn(line)
    result = {
        **numbers,
        "prompts_skipped": dict(loaded.skipped.counts),
        "drafter": call.drafter_name,
        "num_draft_tokens": settings.num_draft_tokens,
        "batch_size": call.batch_size,
        "diagnosed": call.diagnose,
        "temperature": call.temperature,
        "dtype": str(target.dtype).removeprefix("torch."),
        "device": str(target.device),
        "settings": resolved(call, settings, measured.acceptor),
        "provenance": loaded.provenance,
        "wall_seconds": round(time.monotonic() - started, 3),
        "artifact": str(artifact),
    }
    write(call.run, result, artifact)
    return result


def load(call: EvalCall) -> Loaded:
    """Target, drafter and prompts; what cannot work is refused before a model is loaded.

    Raises:
        OptionError: an option is out of range or does not suit the others.
        InputError: draft, target or prompts cannot be read. MismatchError: they do not belong
            together.
    """
    call.check()
    options = call.drafter_options()
    folder = call.draft_folder if options.needs_draft else None
    for name, path in (("prompts", call.prompts), ("draft-vocab", call.draft_vocab)):
        if path is not None and not path.exists():
            raise InputError(f"--{name} {path}: no such file.")
    dtype, device = common.pick_dtype(call.dtype), common.pick_device(call.device)
    import torch

    from vtrim.decoding.engine import Engine
    from vtrim.evaluation.pairing import load_decoder
    from vtrim.models.lean import LeanTarget

    if device == "cpu":
        torch.set_num_threads(call.threads)
    common.hush_libraries()
    source = _source(call)
    note = common.note if call.fast_forward else None
    decoder = load_decoder(source, options, folder, dtype=dtype, device=device, note=note)
    _note_other_vocabulary(call, decoder)
    target, drafter = decoder.target, decoder.drafter
    if call.fallback_chain and _takes_no_tree(target):
        call, drafter = _with_chain(call, decoder)
    engine = Engine(target, drafter, source.tokenizer)
    prompts, skipped = _prompts(call, source, engine.context_length)
    return Loaded(
        call=call,
        engine=engine,
        prompts=prompts,
        skipped=skipped,
        settings=call.settings(source.stop_ids),
        provenance=provenance(
            call,
            source,
            {**decoder.facts, "drafter": call.drafter_name},
            engine.context_length,
            lean=isinstance(target, LeanTarget),
        ),
    )


def _takes_no_tree(target: Target) -> bool:
    """Whether the target's attention takes no mask of a tree; says why."""
    from vtrim.decoding.verify import check_trees

    try:
        check_trees(target)
    except InputError as error:
        common.warn(f"drafting a chain in place of a tree: {error}")
        return True
    return False


def _with_chain(call: EvalCall, decoder: Decoder) -> tuple[EvalCall, Drafter]:
    """The same call, and the draft of the tree drafting a chain."""
    from vtrim.decoding.drafters import make_drafter

    chain = replace(call, drafter="eagle", tree=None, fallback_chain=False)
    draft = None if decoder.draft is None else decoder.draft.model
    return chain, make_drafter(chain.drafter_options(), decoder.target, draft=draft)


def _source(call: EvalCall) -> TargetSource:
    """The target that was typed, else the run's, else the built-in one; says which."""
    from vtrim.evaluation.pairing import TargetSource

    entry = call.run.read().get("target", {})
    name = call.target or entry.get("name")
    if name is None:
        common.note(f"no --target given: measuring on the built-in {DEFAULT_TARGET}.")
        name = DEFAULT_TARGET
    if name != entry.get("name"):
        entry = {}
    return TargetSource(
        name=name,
        run=call.run,
        entry=entry,
        revision=call.revision or entry.get("revision"),
        trust_remote_code=call.trust_remote_code or bool(entry.get("trust_remote_code")),
        offline=call.offline,
    )


def _note_other_vocabulary(call: EvalCall, decoder: Decoder) -> None:
    """Says when the draft does not hold the vocabulary that the run has chosen."""
    if decoder.draft is None or not call.run.vocab.exists():
        return
    chosen, its = DraftVocab.load(call.run.vocab), decoder.draft.vocab
    if chosen.fingerprint == its.fingerprint:
        return
    if call.draft is not None:
        common.note(
            f"{call.draft} holds {its.size:,} tokens, not those of {call.run.vocab} "
            f"({chosen.size:,})."
        )
    else:
        common.warn(
            f"{call.run.draft} was trained with {its.size:,} tokens, not with those of "
            f"{call.run.vocab} ({chosen.size:,}): `vtrim train-draft` makes one for them."
        )


def _prompts(
    call: EvalCall, source: TargetSource, context_length: int
) -> tuple[list[Prompt], SkipLog]:
    """The prompts, and what was skipped: warned of, never silent."""
    from vtrim.chat.render import Renderer
    from vtrim.evaluation.prompts import PromptSource

    reader = PromptSource(
        renderer=Renderer(source.tokenizer),
        context_length=context_length,
        limit=call.num_prompts,
    )
    prompts = reader.from_file(call.prompts) if call.prompts else reader.heldout(call.run)
    for line in reader.skipped.lines():
        common.warn(f"prompts skipped, {line}")
    return prompts, reader.skipped
