"""What ``vtrim trim`` does between parsing and printing: read, choose, resize, write."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from vtrim import __version__
from vtrim.artifacts import check_match, fingerprint_file, fingerprint_json
from vtrim.cli import common
from vtrim.cli.trim_checks import (
    check_output,
    check_rope_theta,
    check_tokenizer,
    fitting_counts,
    remove_other_weights,
)
from vtrim.cli.trim_target import DraftCall, TrimTarget, find_target
from vtrim.errors import OptionError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from vtrim.models.importing import ImportedDraft
    from vtrim.models.resize import Resized
    from vtrim.trimming.coverage import Coverage
    from vtrim.vocab import DraftVocab

    Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TrimCall(DraftCall):
    """The options of one call."""

    output: Path
    vocab: Path | None
    k: int | None
    rope_theta: float | None
    aux_layers: tuple[int, int, int] | None
    force: bool


def run_trim(call: TrimCall) -> dict[str, Any]:
    """Writes the resized draft; the numbers to print."""
    _check_options(call)
    from vtrim.models.importing import import_draft
    from vtrim.models.resize import change_vocabulary

    found = find_target(call)
    target = None if found is None else found.to_import()
    draft = import_draft(
        call.draft, target, rope_theta=call.rope_theta, aux_layer_ids=call.aux_layers
    )
    _check_target(call, draft, found)
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
    result = _facts(call, draft, resized, counts)
    _write(call, draft, resized, found, result)
    remove_other_weights(call.output)
    result["draft_fingerprint"] = fingerprint_file(call.output / "model.safetensors")
    result["artifact"] = str(call.output)
    return result


def show(result: dict[str, Any], run: Path | None = None) -> None:
    """The table on stdout, the folder on stderr. run: the folder that was typed."""
    table = Table(title=f"Draft vocabulary: {result['k_before']:,} -> {result['k']:,} tokens")
    table.add_column("head rows")
    table.add_column("number", justify="right")
    for name in ("kept", "dropped", "added"):
        table.add_row(name, f"{result[name]:,}")
    common.results.print(table)
    fit = result["new_rows"]
    if result["coverage"] is not None:
        common.results.print(
            f"coverage of the run's counts: {result['coverage_before']:.2%} before, "
            f"{result['coverage']:.2%} now",
            markup=False,
            soft_wrap=True,
        )
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
    where = "" if run is None else f" --run {shlex.quote(str(run))}"
    common.note(f"  vtrim eval --draft {shlex.quote(result['artifact'])}{where}")


def _check_options(call: TrimCall) -> None:
    if (call.vocab is None) == (call.k is None):
        raise OptionError("name the new vocabulary with --vocab FILE, or its size with --k N.")
    check_rope_theta(call.rope_theta)
    check_output(call.output, call.draft, force=call.force)


def _check_target(call: TrimCall, draft: ImportedDraft, target: TrimTarget | None) -> None:
    """Refuses another target than the one vtrim trained the draft for."""
    known = draft.provenance.get("target_config_fingerprint")
    if target is not None and known is not None:
        check_match(
            f"{target.name}: config",
            fingerprint_json(target.config),
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


def _facts(
    call: TrimCall, draft: ImportedDraft, resized: Resized, counts: Counts | None
) -> dict[str, Any]:
    """The fields of ``--json``, less what is known after writing."""
    from vtrim.trimming.analysis import covered_share

    vocab = resized.draft.vocab
    sides = {"coverage_before": draft.vocab, "coverage": vocab}
    covered = {
        name: None if counts is None else covered_share(side.ids.tolist(), counts)
        for name, side in sides.items()
    }
    return {
        "draft": str(call.draft),
        "layout": draft.layout,
        "k_before": draft.vocab.size,
        "k": vocab.size,
        "target_vocab_size": vocab.target_vocab_size,
        "kept": resized.kept,
        "dropped": resized.dropped,
        "added": resized.added,
        **covered,
        "new_rows": resized.fit.to_dict() if resized.fit else None,
        "dtype": str(draft.dtype).removeprefix("torch."),
        "notes": list(draft.notes),
        "vocab_fingerprint": vocab.fingerprint,
    }


def _write(
    call: TrimCall,
    draft: ImportedDraft,
    resized: Resized,
    target: TrimTarget | None,
    facts: dict[str, Any],
) -> None:
    """The new folder: config with the draft's origin, card, weights in their own dtype."""
    from vtrim.cli.trim_card import origin_lines, trim_card
    from vtrim.models.exporting import imported_config
    from vtrim.models.layout import write_draft

    names = ("target", "target_config_fingerprint", "tokenizer_fingerprint", "data_fingerprint")
    known = {name: draft.provenance[name] for name in names if name in draft.provenance}
    if target is not None and target.known:
        known |= {"target": target.name}
        known |= {"target_config_fingerprint": fingerprint_json(target.config)}
    provenance = {
        **known,
        "version": __version__,
        "vocab_fingerprint": facts["vocab_fingerprint"],
        "trimmed": {**facts, "draft_fingerprint": _weights_fingerprint(draft.folder)},
        "trained": {name: value for name, value in draft.provenance.items() if name not in known},
        "written": time.strftime("%Y-%m-%d"),
    }
    vocab = resized.draft.vocab
    config = imported_config(resized.draft, provenance)
    card = trim_card(facts, known.get("target"), origin_lines(draft.folder))
    write_draft(call.output, resized.draft.tensors, vocab, config, card)


def _weights_fingerprint(folder: Path) -> str:
    from vtrim.models.checkpoint import Checkpoint

    return fingerprint_file(Checkpoint(folder).path)
