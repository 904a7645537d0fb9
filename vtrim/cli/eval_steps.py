"""What ``vtrim eval`` does between parsing and printing: check, load, measure, write."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vtrim.cli import common
from vtrim.cli.eval_call import EvalCall
from vtrim.cli.eval_expected import expectations
from vtrim.cli.eval_prompts import find_prompts
from vtrim.cli.eval_record import provenance, resolved, warn_of_other_prompts, write
from vtrim.cli.eval_tasks import plain_writer, task_numbers
from vtrim.errors import InputError, OptionError
from vtrim.models import hub
from vtrim.vocab import DraftVocab

if TYPE_CHECKING:
    from pathlib import Path

    from vtrim.chat.skips import SkipLog
    from vtrim.decoding.drafters import DrafterOptions
    from vtrim.decoding.engine import Engine
    from vtrim.decoding.generation import GenerationSettings
    from vtrim.decoding.protocol import Drafter
    from vtrim.evaluation.measure import Measurement
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
    decoder: Decoder
    provenance: dict[str, Any]


def run_eval(call: EvalCall) -> dict[str, Any]:
    """Measures and writes eval/NAME.json; the numbers to print."""
    started = time.monotonic()
    loaded = load(call)
    from vtrim.evaluation.measure import warnings_of

    artifact, call = call.artifact, loaded.call
    target, settings = loaded.engine.target, loaded.settings
    warn_of_other_prompts(artifact, loaded.provenance)
    measured = _measure(loaded)
    numbers = measured.result()
    for line in warnings_of(numbers):
        common.warn(line)
    result = {
        **numbers,
        **task_numbers(loaded.prompts, measured.generations, loaded.engine.tokenizer),
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
    result["expected"] = expectations(call.run, loaded.decoder, result)
    for row in result["missing_tokens"]:
        text = loaded.engine.tokenizer.decode([row["id"]])
        if "\ufffd" not in text:  # a part of a character has no text of its own
            row["text"] = text
    write(call.run, result, artifact)
    return result


def _measure(loaded: Loaded) -> Measurement:
    """Every prompt by every rule, as often as asked."""
    from vtrim.evaluation.measure import MeasureSettings, measure, num_generations
    from vtrim.evaluation.noise import FixedKernel

    call, prompts = loaded.call, loaded.prompts
    observer = call.make_observer()
    how = MeasureSettings(
        batch_size=call.batch_size,
        repeats=call.repeats,
        vocab=loaded.decoder.vocab,
        kernel=FixedKernel(str(loaded.engine.target.device)),
        observer=observer,
    )
    rule, observed = call.make_acceptor(), observer is not None
    total = num_generations(len(prompts), rule, observed=observed, repeats=call.repeats)
    common.note(f"decoding {len(prompts)} prompts, {total} replies in all.")
    with common.progress("decoding", total) as advance:
        return measure(loaded.engine, prompts, loaded.settings, call.make_acceptor, advance, how)


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
    check_named(call)
    device = common.pick_device(call.device)
    _prepare(call, device)
    source = target_of(call)
    found = find_prompts(call, source, source.positions)
    call, decoder, engine = _engine(call, source, options, folder, device)
    if max(len(prompt.ids) for prompt in found.prompts) >= engine.context_length:
        found = find_prompts(call, source, engine.context_length)  # the draft's is less
    settings = _settings(call, source, engine.context_length)
    found = found.whole(source, settings.max_new_tokens, plain_writer(engine, settings))
    for line in found.skipped.lines():
        common.warn(f"prompts skipped, {line}")
    return Loaded(
        call=call,
        engine=engine,
        prompts=list(found.prompts),
        skipped=found.skipped,
        settings=settings,
        decoder=decoder,
        provenance={**_provenance(call, source, decoder, engine.context_length), **found.facts},
    )


def _engine(
    call: EvalCall,
    source: TargetSource,
    options: DrafterOptions,
    folder: Path | None,
    device: str,
) -> tuple[EvalCall, Decoder, Engine]:
    """The call as it can be carried out, the models, and what decodes with them."""
    from vtrim.decoding.engine import Engine
    from vtrim.evaluation.pairing import load_decoder

    dtype, note = common.pick_dtype(call.dtype), common.note if call.fast_forward else None
    decoder = load_decoder(source, options, folder, dtype=dtype, device=device, note=note)
    _note_other_vocabulary(call, decoder)
    drafter = decoder.drafter
    if call.fallback_chain and _takes_no_tree(decoder.target):
        call, drafter = _with_chain(call, decoder)
    engine = Engine(decoder.target, drafter, source.tokenizer)
    if engine.context.note is not None:
        common.note(engine.context.note)
    return call, decoder, engine


def check_named(call: EvalCall) -> None:
    """Refuses files and folders that were named and are not there."""
    for name, path in (("prompts", call.prompts), ("draft-vocab", call.draft_vocab)):
        if path is not None and not path.exists():
            raise InputError(f"--{name} {path}: no such file.")
    for name, model in (("target", call.target), ("draft-model", call.draft_model)):
        if model is not None and hub.is_missing(model):
            raise InputError(f"--{name} {model}: no such folder.")


def _prepare(call: EvalCall, device: str) -> None:
    """Sets up the libraries, and says which options have no effect."""
    import torch

    if device == "cpu":
        torch.set_num_threads(call.threads)
    common.hush_libraries()
    filters = {"--top-k": call.top_k > 0, "--top-p": call.top_p < 1}
    idle = [option for option, given in filters.items() if given]
    if idle and call.temperature == 0:
        common.note(f"{' and '.join(idle)}: without effect at temperature 0.")


def _settings(call: EvalCall, source: TargetSource, context_length: int) -> GenerationSettings:
    """What decides a generation.

    Raises:
        OptionError: more tokens are to be drafted than there are positions.
    """
    settings = call.settings(source.stop_ids)
    if not settings.adaptive and settings.num_draft_tokens >= context_length:
        raise OptionError(
            f"--num-draft-tokens {settings.num_draft_tokens}: target and drafter have "
            f"{context_length:,} positions, prompt included; give far fewer."
        )
    return settings


def _provenance(
    call: EvalCall, source: TargetSource, decoder: Decoder, context_length: int
) -> dict[str, Any]:
    """What was measured, by content, and on what."""
    from vtrim.models.lean import LeanTarget

    return provenance(
        call,
        source,
        {**decoder.facts, "drafter": call.drafter_name},
        context_length,
        lean=isinstance(decoder.target, LeanTarget),
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


def target_of(call: EvalCall) -> TargetSource:
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
