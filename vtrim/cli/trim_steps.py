"""What ``vtrim trim`` does between parsing and printing: read, choose, resize, write."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from vtrim import __version__
from vtrim.artifacts import Run, check_match, fingerprint_file, fingerprint_json
from vtrim.cli import common
from vtrim.cli.trim_checks import (
    check_output,
    check_tokenizer,
    fitting_counts,
    remove_other_weights,
)
from vtrim.errors import OptionError

if TYPE_CHECKING:
    from vtrim.models.importing import ImportedDraft, ImportTarget
    from vtrim.models.resize import Resized
    from vtrim.trimming.coverage import Coverage
    from vtrim.vocab import DraftVocab


@dataclass(frozen=True, kw_only=True)
class TrimCall:
    """The options of one call."""

    draft: Path
    output: Path
    vocab: Path | None
    k: int | None
    run: Run
    target: str | None
    rope_theta: float | None
    aux_layers: tuple[int, int, int] | None
    force: bool
    revision: str | None
    trust_remote_code: bool
    offline: bool


def run_trim(call: TrimCall) -> dict[str, Any]:
    """Writes the resized draft; the numbers to print."""
    _check_options(call)
    from vtrim.models.importing import import_draft
    from vtrim.models.resize import change_vocabulary

    config = _target_config(call)
    target = _import_target(call, config)
    draft = import_draft(
        call.draft, target, rope_theta=call.rope_theta, aux_layer_ids=call.aux_layers
    )
    _check_target(call, draft, config)
    coverage = fitting_counts(call, draft)
    vocab = _vocabulary(call, draft, coverage)
    counts = None if coverage is None else coverage.counts
    new = vocab.size - int(draft.vocab.t2d[vocab.ids].sum())
    if new and target:
        common.note(f"{new:,} new tokens: fitting their rows on {draft.vocab.size:,} others")
    resized = change_vocabulary(draft, vocab, target.head if target else None, counts)
    for line in draft.notes:
        common.note(f"{call.draft}: {line}")
    _warn_of_stop_ids(call, draft, vocab)
    result = _facts(call, draft, resized)
    _write(call, draft, resized, config, result)
    remove_other_weights(call.output)
    result["draft_fingerprint"] = fingerprint_file(call.output / "model.safetensors")
    result["artifact"] = str(call.output)
    return result


def show(result: dict[str, Any]) -> None:
    """The table on stdout, the folder on stderr."""
    table = Table(title=f"Draft vocabulary: {result['k_before']:,} -> {result['k']:,} tokens")
    table.add_column("head rows")
    table.add_column("number", justify="right")
    for name in ("kept", "dropped", "added"):
        table.add_row(name, f"{result[name]:,}")
    common.results.print(table)
    fit = result["new_rows"]
    if fit:
        common.results.print(
            f"rows of new tokens: a map fitted on {fit['common']:,} tokens"
            f"{', weighted by the counts of the run' if fit['weighted'] else ''}, strength "
            f"{fit['strength']:g}; trained rows it did not see come back with an error of "
            f"{fit['relative_error']:.1%} (cosine {fit['cosine']:.3f})",
            markup=False,
            soft_wrap=True,
        )
    common.note(f"{result['artifact']} written ({result['layout']} layout read). Measure it with")
    common.note(f"  vtrim eval --draft {result['artifact']}")


def _check_options(call: TrimCall) -> None:
    if (call.vocab is None) == (call.k is None):
        raise OptionError("name the new vocabulary with --vocab FILE, or its size with --k N.")
    theta = call.rope_theta
    if theta is not None and not (math.isfinite(theta) and theta > 0):
        raise OptionError(f"--rope-theta {theta:g}: must be above 0 and finite.")
    check_output(call.output, call.draft, force=call.force)


def _target_config(call: TrimCall) -> dict[str, Any] | None:
    if call.target is None:
        return None
    common.hush_libraries()
    from vtrim.models.hub import load_config

    return load_config(
        call.target,
        revision=call.revision,
        trust_remote_code=call.trust_remote_code,
        offline=call.offline,
    )


def _import_target(call: TrimCall, config: dict[str, Any] | None) -> ImportTarget | None:
    """What the import and the new rows may ask of the target; its head is read only then."""
    if call.target is None or config is None:
        return None
    from functools import partial

    from vtrim.models.importing import ImportTarget
    from vtrim.models.target_head import head_rows
    from vtrim.shape import DraftShape

    shape = DraftShape.from_target_config(config)
    return ImportTarget(
        name=call.target,
        num_layers=shape.num_target_layers,
        vocab_size=shape.target_vocab_size,
        hidden_size=shape.hidden_size,
        head=partial(
            head_rows,
            call.target,
            revision=call.revision,
            trust_remote_code=call.trust_remote_code,
            offline=call.offline,
        ),
    )


def _check_target(call: TrimCall, draft: ImportedDraft, config: dict[str, Any] | None) -> None:
    """Refuses another target than the one vtrim trained the draft for."""
    known = draft.provenance.get("target_config_fingerprint")
    if config is not None and known is not None:
        check_match(
            f"{call.target}: config",
            fingerprint_json(config),
            known,
            str(call.draft / "config.json"),
            f"The draft was trained for {draft.provenance.get('target', 'another target')}.",
        )


def _vocabulary(call: TrimCall, draft: ImportedDraft, coverage: Coverage | None) -> DraftVocab:
    """The vocabulary asked for, from a file or from the counts of the run."""
    from vtrim.vocab import DraftVocab

    size = draft.vocab.target_vocab_size
    if call.vocab is None:
        ids = coverage.curve().ids(call.k) if coverage and call.k else []
        return DraftVocab.of(ids, size)
    from vtrim.models.vocab_files import read_vocab

    found = read_vocab(call.vocab, target_vocab_size=size)
    check_tokenizer(call, draft, found.metadata.get("tokenizer_fingerprint"), call.vocab)
    return found.vocab


def _warn_of_stop_ids(call: TrimCall, draft: ImportedDraft, vocab: DraftVocab) -> None:
    """Warns when the draft will not be able to propose the end of a reply."""
    named = draft.config.get("eos_token_id")
    stops = set(named if isinstance(named, list) else [named]) - {None}
    entry = call.run.read().get("target") or {}
    known = draft.provenance.get("tokenizer_fingerprint")
    if known is not None and known == entry.get("tokenizer_fingerprint"):
        stops |= set(entry.get("stop_ids", ()))
    missing = sorted(stops - set(vocab.ids.tolist()))
    if missing:
        common.warn(f"the new vocabulary lacks stop token ids {missing}: no reply's end is drafted")


def _facts(call: TrimCall, draft: ImportedDraft, resized: Resized) -> dict[str, Any]:
    """The fields of ``--json``, less what is known after writing."""
    vocab = resized.draft.vocab
    return {
        "draft": str(call.draft),
        "layout": draft.layout,
        "k_before": draft.vocab.size,
        "k": vocab.size,
        "target_vocab_size": vocab.target_vocab_size,
        "kept": resized.kept,
        "dropped": resized.dropped,
        "added": resized.added,
        "new_rows": resized.fit.to_dict() if resized.fit else None,
        "dtype": str(draft.dtype).removeprefix("torch."),
        "notes": list(draft.notes),
        "vocab_fingerprint": vocab.fingerprint,
    }


def _write(
    call: TrimCall,
    draft: ImportedDraft,
    resized: Resized,
    target_config: dict[str, Any] | None,
    facts: dict[str, Any],
) -> None:
    """The new folder: config with the draft's origin, card, weights in their own dtype."""
    from vtrim.cli.trim_card import trim_card
    from vtrim.models.layout import draft_config, write_draft

    names = ("target", "target_config_fingerprint", "tokenizer_fingerprint", "data_fingerprint")
    known = {name: draft.provenance[name] for name in names if name in draft.provenance}
    if target_config is not None:
        known |= {"target": call.target}
        known |= {"target_config_fingerprint": fingerprint_json(target_config)}
    provenance = {
        **known,
        "version": __version__,
        "vocab_fingerprint": facts["vocab_fingerprint"],
        "trimmed": {**facts, "draft_fingerprint": _weights_fingerprint(draft.folder)},
        "trained": {name: value for name, value in draft.provenance.items() if name not in known},
        "written": time.strftime("%Y-%m-%d"),
    }
    vocab = resized.draft.vocab
    config = draft_config(draft.shape, vocab, draft.aux_layer_ids, draft.config, provenance)
    config["torch_dtype"] = facts["dtype"]
    for name in ("rope_scaling", "rope_parameters"):
        if draft.config.get(name):
            config[name] = draft.config[name]
    card = trim_card(facts, known.get("target"))
    write_draft(call.output, resized.draft.tensors, vocab, config, card)


def _weights_fingerprint(folder: Path) -> str:
    from vtrim.models.checkpoint import Checkpoint

    return fingerprint_file(Checkpoint(folder).path)
