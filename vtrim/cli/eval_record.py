"""What ``vtrim eval`` writes beside its numbers: every setting, and what was measured on what."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim import __version__
from vtrim.artifacts import Run, fingerprint_file, fingerprint_json, read_object, write_json
from vtrim.cli import common
from vtrim.cli.eval_call import EvalCall
from vtrim.cli.eval_values import AUTO
from vtrim.errors import InputError

if TYPE_CHECKING:
    from vtrim.decoding.generation import GenerationSettings
    from vtrim.decoding.protocol import Acceptor
    from vtrim.evaluation.pairing import TargetSource
    from vtrim.vocab import DraftVocab


def resolved(call: EvalCall, settings: GenerationSettings, acceptor: Acceptor) -> dict[str, Any]:
    """Every setting that decides the result, the defaults of drafter and acceptor included."""
    options = call.drafter_options()
    return {
        "acceptor": {"name": acceptor.name, **acceptor_options(acceptor)},
        "drafter": {"name": options.name, **_plain(asdict(options))},
        "max_new_tokens": settings.max_new_tokens,
        "stop_ids": sorted(settings.stop_ids),
        "stop_strings": list(settings.stop_strings),
        "temperature": settings.temperature,
        "top_k": settings.top_k,
        "top_p": settings.top_p,
        "num_draft_tokens": settings.num_draft_tokens,
        "adaptive": settings.adaptive,
        "batch_size": call.batch_size,
        "seed": settings.seed,
        "num_prompts": call.num_prompts,
        "threads": call.threads,
    }


def acceptor_options(acceptor: Acceptor) -> dict[str, Any]:
    """The options of a rule, defaults included, and the noise that was chosen where it was open."""
    if not is_dataclass(acceptor):
        return {}
    names = [field.name for field in fields(acceptor) if field.init and field.name != "diagnose"]
    options = {name: getattr(acceptor, name) for name in names}
    calibration = getattr(acceptor, "calibration", None)
    if options.get("p_drop") == AUTO and calibration is not None:
        options["p_drop_chosen"] = calibration.p_drop
    return options


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Options as JSON can hold them."""
    return {
        name: str(value) if isinstance(value, Path) else value for name, value in options.items()
    }


def provenance(
    call: EvalCall,
    source: TargetSource,
    drafter: dict[str, Any],
    context_length: int,
    *,
    lean: bool,
) -> dict[str, Any]:
    """What was measured, by content, and on what. drafter: the facts of what drafts."""
    import torch
    import transformers

    from vtrim.training.target_weights import weights_fingerprint

    return {
        **_measured_on(call, source),
        "target_weights": weights_fingerprint(source.name, revision=source.revision),
        **drafter,
        "forward": "lean" if lean else "transformers",
        "context_length": context_length,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def engine_provenance(
    call: EvalCall,
    source: TargetSource,
    draft: tuple[Path, DraftVocab] | None,
    tasks: Mapping[str, Any],
) -> dict[str, Any]:
    """What a serving engine measured, by content. draft: folder and vocabulary, where known."""
    facts = {**_measured_on(call, source), **draft_facts(draft)}
    return {**facts, "forward": call.engine, **tasks}


def _measured_on(call: EvalCall, source: TargetSource) -> dict[str, Any]:
    """Target, prompts and machine."""
    return {
        "vtrim": __version__,
        "target": source.name,
        "target_config_fingerprint": fingerprint_json(source.config),
        "prompts": "held-out rows of the run" if call.prompts is None else str(call.prompts),
        "prompts_fingerprint": None if call.prompts is None else fingerprint_file(call.prompts),
        "machine": platform.processor() or platform.machine(),
    }


def draft_facts(draft: tuple[Path, DraftVocab] | None) -> dict[str, Any]:
    """The draft by name, size and content; None of one that a server has."""
    names = ("draft", "draft_fingerprint", "draft_vocab_size", "vocab_fingerprint")
    if draft is None:
        return dict.fromkeys(names)
    folder, vocab = draft
    content = fingerprint_file(folder / "model.safetensors")
    return dict(zip(names, (str(folder), content, vocab.size, vocab.fingerprint), strict=True))


def warn_of_other_prompts(artifact: Path, found: Mapping[str, Any]) -> None:
    """Says when this result will take the place of one of other prompts. found: provenance."""
    try:
        earlier = read_object(artifact).get("provenance") or {}
    except InputError:  # there is none, or it is of no use
        return
    if any(earlier.get(key) != found.get(key) for key in ("prompts_fingerprint", "tasks")):
        common.warn(
            f"{artifact} is a result of other prompts and will be replaced; --name keeps both."
        )


def write(run: Run, result: dict[str, Any], artifact: Path) -> None:
    """eval/NAME.json, then the entry of run.json that lists all results."""
    write_json(artifact, result)
    steps = run.read()["steps"]
    earlier = steps.get("eval", {}).get("results", {})
    names = ("acceptor", "lossless", "acceptance_length", "tokens_per_second", "speedup")
    brief = {name: result[name] for name in (*names, "settings", "artifact")}
    run.record("eval", {"results": {**earlier, artifact.stem: brief}})
