"""What ``vtrim export`` does between parsing and printing: read, write in another layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import fingerprint_file
from vtrim.cli import common
from vtrim.cli.trim_checks import check_output, remove_other_weights
from vtrim.cli.trim_target import DraftCall, TrimTarget, find_target

if TYPE_CHECKING:
    from vtrim.models.exporting import Verifier
    from vtrim.models.importing import ImportedDraft


@dataclass(frozen=True, kw_only=True)
class ExportCall(DraftCall):
    """The options of one call that writes a draft."""

    to: str
    output: Path
    force: bool


def run_export(call: ExportCall) -> dict[str, Any]:
    """Writes the draft in the layout asked for; the fields of ``--json``."""
    check_output(call.output, call.draft, force=call.force)
    from vtrim.models.exporting import TRT_FILE, export_draft
    from vtrim.models.importing import import_draft

    found = find_target(call)
    draft = import_draft(call.draft, None if found is None else found.to_import())
    for line in draft.notes:
        common.note(f"{call.draft}: {line}")
    made = export_draft(draft, call.to, verifier_of(draft, found))
    made.write(call.output, draft_card(draft))
    remove_other_weights(call.output, made.weights_name)
    if TRT_FILE not in made.texts:
        (call.output / TRT_FILE).unlink(missing_ok=True)
    return {
        "draft": str(call.draft),
        "layout": draft.layout,
        "to": call.to,
        "k": draft.vocab.size,
        "target_vocab_size": draft.vocab.target_vocab_size,
        "dtype": str(draft.dtype).removeprefix("torch."),
        "files": sorted({"config.json", "README.md", made.weights_name, *made.texts}),
        "notes": list(draft.notes),
        "draft_fingerprint": fingerprint_file(call.output / made.weights_name),
        "artifact": str(call.output),
    }


def verifier_of(draft: ImportedDraft, target: TrimTarget | None) -> Verifier | None:
    """The target by a name that engines know; None where nothing tells it."""
    from vtrim.models.exporting import Verifier

    name = target.name if target is not None else draft.target_name
    if name is None:
        return None
    architectures = (target.config if target is not None else {}).get("architectures")
    place = engine_name(name)
    if architectures is None and (Path(place) / "config.json").is_file():
        from vtrim.artifacts import read_object

        architectures = read_object(Path(place) / "config.json").get("architectures")
    return Verifier(place, tuple(architectures or ()))


def engine_name(name: str) -> str:
    """A target's name as engines take it: a hub id as it is, a folder in full."""
    from vtrim.models.smollm2 import SMOLLM2, smollm2_folder

    if name == SMOLLM2:
        return str(smollm2_folder())
    return str(Path(name).resolve()) if Path(name).is_dir() else name


def draft_card(draft: ImportedDraft) -> str:
    """The card in the draft's folder, else a short one."""
    try:
        return (draft.folder / "README.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        pass
    whose = f" for {draft.target_name}" if draft.target_name else ""
    return (
        f"---\nlibrary_name: vtrim\nlicense: other\ntags: [speculative-decoding, eagle3]\n---\n"
        f"# EAGLE-3 draft{whose}\n\n"
        f"A draft head over {draft.vocab.size:,} of the target's "
        f"{draft.vocab.target_vocab_size:,} tokens. Licence: that of the draft it was made from.\n"
    )


def show(result: dict[str, Any]) -> None:
    """The folder's files on stdout, what was read on stderr."""
    common.results.print(
        f"{result['artifact']}: {result['to']} layout, {result['k']:,} of "
        f"{result['target_vocab_size']:,} tokens, {result['dtype']}: {', '.join(result['files'])}",
        markup=False,
        soft_wrap=True,
    )
