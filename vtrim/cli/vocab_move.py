"""What ``vtrim vocab import`` and ``export`` do: read one format, write another."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim import __version__
from vtrim.artifacts import Run, check_match
from vtrim.cli import common
from vtrim.cli.vocab_steps import VocabCall, missing_stop_ids
from vtrim.errors import OptionError

if TYPE_CHECKING:
    from vtrim.models.vocab_files import VocabFile

INTO_RUN = "run"
_ARRAYS = ("d2t", "t2d")


def take(call: VocabCall, source: Path, to: str, *, force: bool = False) -> dict[str, Any]:
    """Writes a vocabulary of any project as vtrim's own; the numbers to print.

    Raises:
        MismatchError: it is another target's than the run's. OptionError: a file is in the way.
    """
    found = call.read(source)
    share = None
    metadata = {"vtrim": __version__, "imported_from": found.path.name}
    known = found.metadata.get("tokenizer_fingerprint")
    if known is not None:
        metadata["tokenizer_fingerprint"] = known
    if to == INTO_RUN:
        path = call.run.vocab
        fitting, share = _of_run(call.run, found)
        metadata |= fitting
        if path.exists():
            common.note(f"{path}: replaces the vocabulary that was there")
    else:
        path = Path(to)
        _check_free(f"--to {to}", [path], found, force=force)
    missing = missing_stop_ids(call, None, found)
    if missing:
        common.warn(f"the vocabulary lacks stop token ids {missing}: no reply's end is drafted")
    if found.moved:
        common.note(f"{found.path}: ids were in another order; sorted ({found.moved:,} moved)")
    found.vocab.save(path, metadata)
    result = {
        "source": str(found.path),
        "format": found.format,
        "k": found.vocab.size,
        "target_vocab_size": found.vocab.target_vocab_size,
        "moved": found.moved,
        "missing_stop_ids": missing,
        "coverage": share,
        "vocab_fingerprint": found.vocab.fingerprint,
        "artifact": str(path),
    }
    if to == INTO_RUN:
        call.run.record("vocab-import", result)
    return result


def give(
    call: VocabCall, source: Path | None, file_format: str, output: Path, *, force: bool = False
) -> dict[str, Any]:
    """Writes a vocabulary as another project reads it; the files written.

    Raises:
        OptionError: a file is in the way, or there is no such format.
    """
    from vtrim.models.vocab_files import files_of, write_vocab
    from vtrim.models.vocab_formats import known_format

    file_format = known_format(file_format) or "vtrim"
    found = call.read(source)
    _check_free(f"--output {output}", files_of(output, file_format), found, force=force)
    files = write_vocab(found.vocab, output, file_format, found.metadata)
    return {
        "source": str(found.path),
        "format": file_format,
        "k": found.vocab.size,
        "target_vocab_size": found.vocab.target_vocab_size,
        "files": [str(file) for file in files],
        "vocab_fingerprint": found.vocab.fingerprint,
        "artifact": str(output),
    }


def _check_free(option: str, files: list[Path], found: VocabFile, *, force: bool) -> None:
    """Refuses to write over the file that was read, and over others unless that was asked for."""
    for file in files:
        if file.is_dir():
            raise OptionError(f"{option}: {file} is a folder; {_remedy(option, file)}.")
        if not file.exists():
            continue
        of_draft = found.format == "draft" and file.parent.samefile(found.path.parent)
        if of_draft or any(file.samefile(other) for other in _read_files(found)):
            raise OptionError(f"{option}: {file} belongs to what was read; name another file.")
        if not force:
            raise OptionError(f"{option}: {file} exists; --force replaces it.")


def _remedy(option: str, folder: Path) -> str:
    """What to type where a folder stands in place of a file."""
    if option.startswith("--to ") and (folder / "run.json").exists():
        return f"name a file, or type `--to run --run {shlex.quote(str(folder))}`: that run's own"
    return "name a file in it"


def _read_files(found: VocabFile) -> list[Path]:
    """The file a vocabulary came from; both arrays of speculators."""
    if found.path.suffix != ".npy":
        return [found.path]
    return [file for file in (found.path.with_name(f"{n}.npy") for n in _ARRAYS) if file.exists()]


def _of_run(run: Run, found: VocabFile) -> tuple[dict[str, str], float | None]:
    """Metadata that makes a vocabulary the run's, and its share of the run's counts."""
    from vtrim.trimming.analysis import covered_share
    from vtrim.trimming.coverage import Coverage

    path = run.require(run.coverage, "coverage")
    size = found.vocab.target_vocab_size
    entry = run.read().get("target") or {}
    remedy = "Import it into a run of its own target, or --to a file."
    check_match("target vocabulary", size, entry.get("vocab_size"), str(run.manifest), remedy)
    coverage = Coverage.load(path).for_target(size)
    known = found.metadata.get("tokenizer_fingerprint")
    if known is not None:
        here = coverage.tokenizer_fingerprint
        check_match(f"{found.path}: tokenizer", known, here, str(path), remedy)
    metadata = {
        "tokenizer_fingerprint": coverage.tokenizer_fingerprint,
        "coverage_fingerprint": coverage.fingerprint,
    }
    return metadata, covered_share(found.vocab.ids.tolist(), coverage.counts)
