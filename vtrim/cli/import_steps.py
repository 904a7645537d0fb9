"""What ``vtrim import`` does between parsing and printing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim import __version__
from vtrim.artifacts import fingerprint_file, fingerprint_json
from vtrim.cli import common
from vtrim.cli.export_steps import draft_card
from vtrim.cli.trim_checks import check_output, check_rope_theta, remove_other_weights
from vtrim.cli.trim_target import DraftCall, TrimTarget, find_target

if TYPE_CHECKING:
    from vtrim.models.importing import ImportedDraft


@dataclass(frozen=True, kw_only=True)
class ImportCall(DraftCall):
    """The options of one call."""

    output: Path
    rope_theta: float | None
    aux_layers: tuple[int, int, int] | None
    force: bool


def run_import(call: ImportCall) -> dict[str, Any]:
    """Writes the draft in the portable layout; the fields of ``--json``."""
    check_rope_theta(call.rope_theta)
    check_output(call.output, call.draft, force=call.force)
    from vtrim.models.exporting import imported_config
    from vtrim.models.importing import import_draft
    from vtrim.models.layout import WEIGHTS, write_draft

    found = find_target(call)
    draft = import_draft(
        call.draft,
        None if found is None else found.to_import(),
        rope_theta=call.rope_theta,
        aux_layer_ids=call.aux_layers,
    )
    draft = _with_context(draft, found)
    for line in draft.notes:
        common.note(f"{call.draft}: {line}")
    config = imported_config(draft, _provenance(call, draft, found))
    write_draft(call.output, draft.tensors, draft.vocab, config, draft_card(draft))
    remove_other_weights(call.output)
    return {
        "draft": str(call.draft),
        "layout": draft.layout,
        "to": "portable",
        "k": draft.vocab.size,
        "target_vocab_size": draft.vocab.target_vocab_size,
        "dtype": config["torch_dtype"],
        "aux_layer_ids": draft.aux_layer_ids and list(draft.aux_layer_ids),
        "rope_theta": draft.shape.rope_theta,
        "files": ["README.md", "config.json", WEIGHTS],
        "notes": list(draft.notes),
        "draft_fingerprint": fingerprint_file(call.output / WEIGHTS),
        "artifact": str(call.output),
    }


def _with_context(draft: ImportedDraft, target: TrimTarget | None) -> ImportedDraft:
    """The draft with the positions of its target, below which SGLang does not start."""
    from vtrim.shape import DraftShape

    if target is None or not target.known:
        return draft
    context = DraftShape.from_target_config(target.config).max_position_embeddings
    before = draft.shape.max_position_embeddings
    if before >= context:
        return draft
    note = f"max_position_embeddings {before:,} raised to the target's {context:,}"
    shape = replace(draft.shape, max_position_embeddings=context)
    return replace(draft, shape=shape, notes=(*draft.notes, note))


def _provenance(
    call: ImportCall, draft: ImportedDraft, target: TrimTarget | None
) -> dict[str, Any]:
    """What vtrim noted when it trained the draft, as it is; else where the draft came from."""
    known = dict(draft.provenance)
    if known and call.rope_theta is None and call.aux_layers is None:
        return known
    from vtrim.models.checkpoint import Checkpoint

    named = target.name if target is not None and target.known else draft.target_name
    if named is not None:
        known.setdefault("target", named)
    if target is not None and target.known:
        known.setdefault("target_config_fingerprint", fingerprint_json(target.config))
    origin = {
        "layout": draft.layout,
        "draft_fingerprint": fingerprint_file(Checkpoint(draft.folder).path),
        "notes": list(draft.notes),
        "rope_theta": call.rope_theta,
        "aux_layer_ids": call.aux_layers and list(call.aux_layers),
    }
    return {**known, "version": __version__, "imported": origin}
