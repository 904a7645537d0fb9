"""What ``vtrim eval`` does between parsing and printing: check, load, measure, write."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim import __version__
from vtrim.artifacts import Run, fingerprint_file, write_json
from vtrim.cli import common
from vtrim.errors import InputError, OptionError
from vtrim.vocab import DraftVocab

if TYPE_CHECKING:
    from vtrim.chat.skips import SkipLog
    from vtrim.decoding.engine import Engine
    from vtrim.decoding.generation import GenerationSettings
    from vtrim.decoding.protocol import Acceptor
    from vtrim.evaluation.pairing import TargetSource
    from vtrim.evaluation.prompts import Prompt
    from vtrim.models.layout import LoadedDraft

DEFAULT_TARGET = "smollm2"


@dataclass(frozen=True, kw_only=True)
class EvalCall:
    """The options of one call; ``options`` holds those of the acceptor that were typed."""

    run: Run
    draft: Path | None
    target: str | None
    acceptor: str
    options: dict[str, Any]
    temperature: float
    num_draft_tokens: int
    seed: int
    prompts: Path | None
    num_prompts: int
    max_new_tokens: int
    dtype: str
    device: str | None
    threads: int
    revision: str | None
    trust_remote_code: bool
    offline: bool
    name: str | None

    @property
    def draft_folder(self) -> Path:
        """Where the draft lies.

        Raises:
            InputError: none was named and the run has none, or a file was named.
        """
        if self.draft is not None and self.draft.exists() and not self.draft.is_dir():
            raise InputError(
                f"--draft {self.draft}: not a folder; name the folder that holds the draft's "
                "config.json and model.safetensors."
            )
        return self.draft or self.run.require(self.run.draft, "train-draft")

    @property
    def artifact(self) -> Path:
        """Where the result goes.

        Raises:
            OptionError: the name is not that of a file.
        """
        name = self.name or self.acceptor
        if Path(name).name != name or name.startswith("."):
            raise OptionError(f"--name {name}: give a plain name, without folders.")
        return self.run.eval / f"{name}.json"

    def make_acceptor(self) -> Acceptor:
        """The chosen rule, with nothing counted yet.

        Raises:
            OptionError: an option is unknown or out of range, or does not suit the temperature.
        """
        from vtrim.decoding.acceptors import make_acceptor

        for option in self.options if self.acceptor in ("greedy", "rejection") else ():
            raise OptionError(
                f"--{option.replace('_', '-')}: only with --acceptor dropmatch, not with "
                f"{self.acceptor}."
            )
        return make_acceptor(
            self.acceptor, temperature=self.temperature, seed=self.seed, **self.options
        )


def run_eval(call: EvalCall) -> dict[str, Any]:
    """Measures and writes eval/NAME.json; the numbers to print.

    What cannot work is refused before a model is loaded.
    """
    started = time.monotonic()
    artifact, acceptor, folder = call.artifact, call.make_acceptor(), call.draft_folder
    if call.prompts is not None and not call.prompts.exists():
        raise InputError(f"--prompts {call.prompts}: no such file.")
    dtype, device = common.pick_dtype(call.dtype), common.pick_device(call.device)
    import torch

    from vtrim.decoding.chain import ChainDrafter
    from vtrim.decoding.engine import Engine
    from vtrim.evaluation.measure import measure, num_generations, warnings_of
    from vtrim.evaluation.pairing import load_pair

    if device == "cpu":
        torch.set_num_threads(call.threads)
    common.hush_libraries()
    source = _source(call)
    target, draft = load_pair(source, folder, dtype=dtype, device=device)
    _note_other_vocabulary(call, draft)
    engine = Engine(target, ChainDrafter(draft.model, target.embedding))
    prompts, skipped = _prompts(call, source, engine.context_length)
    settings = _settings(call, source)
    with common.progress("decoding", num_generations(len(prompts), acceptor)) as advance:
        measured = measure(engine, prompts, settings, call.make_acceptor, advance)
    numbers = measured.result()
    for line in warnings_of(numbers):
        common.warn(line)
    result = {
        **numbers,
        "prompts_skipped": dict(skipped.counts),
        "num_draft_tokens": call.num_draft_tokens,
        "temperature": call.temperature,
        "dtype": str(target.dtype).removeprefix("torch."),
        "device": str(target.device),
        "settings": _resolved(call, settings, measured.acceptor),
        "provenance": _provenance(call, source, draft, engine),
        "wall_seconds": round(time.monotonic() - started, 3),
        "artifact": str(artifact),
    }
    _write(call, result, artifact)
    return result


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


def _note_other_vocabulary(call: EvalCall, draft: LoadedDraft) -> None:
    """Says when the draft does not hold the vocabulary that the run has chosen."""
    if call.run.vocab.exists():
        chosen = DraftVocab.load(call.run.vocab)
        if chosen.fingerprint == draft.vocab.fingerprint:
            return
        if call.draft is not None:
            common.note(
                f"{call.draft} holds {draft.vocab.size:,} tokens, not those of {call.run.vocab} "
                f"({chosen.size:,})."
            )
        else:
            common.warn(
                f"{call.run.draft} was trained with {draft.vocab.size:,} tokens, not with those of "
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


def _settings(call: EvalCall, source: TargetSource) -> GenerationSettings:
    from vtrim.decoding.generation import GenerationSettings

    return GenerationSettings(
        max_new_tokens=call.max_new_tokens,
        stop_ids=source.stop_ids,
        temperature=call.temperature,
        num_draft_tokens=call.num_draft_tokens,
        seed=call.seed,
    )


def _resolved(call: EvalCall, settings: GenerationSettings, acceptor: Acceptor) -> dict[str, Any]:
    """Every setting that decides the result, the acceptor's defaults included."""
    from dataclasses import fields, is_dataclass

    options: dict[str, Any] = {}
    if is_dataclass(acceptor):
        options = {f.name: getattr(acceptor, f.name) for f in fields(acceptor) if f.init}
    return {
        "acceptor": {"name": acceptor.name, **options},
        "max_new_tokens": settings.max_new_tokens,
        "stop_ids": sorted(settings.stop_ids),
        "temperature": settings.temperature,
        "num_draft_tokens": settings.num_draft_tokens,
        "seed": settings.seed,
        "num_prompts": call.num_prompts,
        "threads": call.threads,
    }


def _provenance(
    call: EvalCall, source: TargetSource, draft: LoadedDraft, engine: Engine
) -> dict[str, Any]:
    """What was measured, by content, and on what."""
    import platform

    import torch
    import transformers

    from vtrim.artifacts import fingerprint_json

    folder = call.draft_folder
    return {
        "vtrim": __version__,
        "target": source.name,
        "target_config_fingerprint": fingerprint_json(source.config),
        "draft": str(folder),
        "draft_fingerprint": fingerprint_file(folder / "model.safetensors"),
        "draft_vocab_size": draft.vocab.size,
        "target_vocab_size": draft.vocab.target_vocab_size,
        "vocab_fingerprint": draft.vocab.fingerprint,
        "context_length": engine.context_length,
        "prompts": "held-out rows of the run" if call.prompts is None else str(call.prompts),
        "prompts_fingerprint": None if call.prompts is None else fingerprint_file(call.prompts),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "machine": platform.processor() or platform.machine(),
    }


def _write(call: EvalCall, result: dict[str, Any], artifact: Path) -> None:
    """eval/NAME.json, then the entry of run.json that lists all results."""
    write_json(artifact, result)
    steps = call.run.read()["steps"]
    earlier = steps.get("eval", {}).get("results", {})
    names = ("acceptor", "lossless", "acceptance_length", "tokens_per_second", "speedup")
    brief = {name: result[name] for name in (*names, "settings", "artifact")}
    call.run.record("eval", {"results": {**earlier, artifact.stem: brief}})
