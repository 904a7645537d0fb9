"""What ``vtrim trim`` makes sure of: counts of the draft's own tokenizer, a folder it may write."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from vtrim.artifacts import check_match
from vtrim.cli import common
from vtrim.cli.token_text import fingerprints
from vtrim.errors import InputError, MismatchError, OptionError, VtrimError

if TYPE_CHECKING:
    from vtrim.cli.trim_steps import TrimCall
    from vtrim.models.importing import ImportedDraft
    from vtrim.trimming.coverage import Coverage

_KEPT = "model.safetensors"
# a draft's; engines read every file of tensors in a folder, and pytorch_model.bin first
_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin", "*.index.json")


def check_output(output: Path, draft: Path, *, force: bool) -> None:
    """Refuses a folder that is something else, and one that holds a draft unless that was asked.

    Raises:
        OptionError: names what is in the way.
    """
    if output.exists() and not output.is_dir():
        raise OptionError(f"--output {output}: is a file; name a folder.")
    if output.resolve() == draft.resolve():
        raise OptionError(f"--output {output}: is the draft itself; name another folder.")
    if (output / "run.json").exists():
        raise OptionError(f"--output {output}: is a run folder; name another, e.g. draft-trimmed.")
    ours = _weight_files(output)
    for path in sorted(output.glob("*.safetensors")):
        if path not in ours:
            raise OptionError(
                f"--output {output}: holds {path.name}, which engines would read as weights; "
                "name another folder, or move it away."
            )
    there = [*ours, *(p for p in [output / "config.json"] if p.exists())]
    if there and not force:
        raise OptionError(f"--output {output}: holds {there[0].name}; --force replaces it.")


def check_rope_theta(typed: float | None) -> None:
    """Refuses a base that rotates nothing.

    Raises:
        OptionError: shows it.
    """
    if typed is not None and not (math.isfinite(typed) and typed > 0):
        raise OptionError(f"--rope-theta {typed:g}: must be above 0 and finite.")


def remove_other_weights(output: Path, kept: str = _KEPT) -> None:
    """Removes what an engine would read in place of, or beside, the weights just written."""
    for path in _weight_files(output):
        if path.name == kept:
            continue
        try:
            path.unlink()
        except OSError as error:
            raise InputError(
                f"{path}: weights of another draft that cannot be removed "
                f"({error.strerror or error}); engines may read them in place of the new ones."
            ) from error
        common.note(f"{path}: removed, weights of the draft that was there")


def _weight_files(folder: Path) -> list[Path]:
    return sorted(p for pattern in _WEIGHTS for p in folder.glob(pattern) if not p.is_dir())


def fitting_counts(call: TrimCall, draft: ImportedDraft) -> Coverage | None:
    """The run's counts: needed for --k, else used where they are those of the draft's tokenizer.

    Raises:
        VtrimError: a size was asked for, and there are none or those of another target.
    """
    from vtrim.trimming.coverage import Coverage

    path = call.run.coverage
    if call.k is None and not path.exists():
        return None
    try:
        coverage = Coverage.load(call.run.require(path, "coverage"))
        if not check_tokenizer(call, draft, coverage.tokenizer_fingerprint, path):
            _check_sizes(call, draft, coverage.target_vocab_size)
        return coverage.for_target(draft.vocab.target_vocab_size)
    except VtrimError as error:
        if call.k is not None:
            raise
        common.note(f"counts of the run left out: {error}")
        return None


def _check_sizes(call: TrimCall, draft: ImportedDraft, counted: int) -> None:
    """Refuses counts over another number of rows, where no tokenizer tells more."""
    size, run = draft.vocab.target_vocab_size, call.run
    remedy = "Counts of another target choose other tokens: name the draft's own run with --run."
    known = (run.read().get("target") or {}).get("vocab_size", size)
    for rows, origin in ((counted, run.coverage), (known, run.manifest)):
        what = f"{draft.folder}: V, the rows of the target's head,"
        check_match(what, size, rows, str(origin), remedy)


def check_tokenizer(call: TrimCall, draft: ImportedDraft, found: str | None, origin: Path) -> bool:
    """Whether ids are known to mean the same in ``origin`` and the draft; a note where not.

    The draft's tokenizer is the one vtrim noted, and that of --target.

    Raises:
        MismatchError: they are known to mean something else.
    """
    remedy = "Ids mean other tokens there: choose a vocabulary counted with the draft's own."
    noted, proven = draft.provenance.get("tokenizer_fingerprint"), False
    if noted is not None and found is not None:
        check_match(f"{draft.folder}: tokenizer", noted, found, str(origin), remedy)
        proven = True
    elif call.target is not None and found is not None:
        here = _of_target(call)
        if here and found not in here:
            raise MismatchError(
                f"{call.target}: tokenizer differs: {here[0]} here, {found} in {origin}. {remedy}"
            )
        proven = bool(here)
    if not proven:
        common.note(
            f"{draft.folder}: nothing tells whether ids mean the same tokens in {origin}"
            f"{'; --target would' if found and not noted and not call.target else ''}"
        )
    return proven


def _of_target(call: TrimCall) -> list[str]:
    """Fingerprints of the target's tokenizer; none where it has no tokenizer."""
    from vtrim.models.hub import load_tokenizer

    try:
        tokenizer = load_tokenizer(
            str(call.target),
            revision=call.revision,
            trust_remote_code=call.trust_remote_code,
            offline=call.offline,
        )
    except InputError as error:
        common.note(f"tokenizer of the target left out: {error}")
        return []
    return fingerprints(tokenizer, call.run.read().get("target") or {})
