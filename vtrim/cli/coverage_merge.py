"""``vtrim coverage --merge``: counts of several machines or files become those of one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.cli import common
from vtrim.cli.coverage_record import Record, record_of, step_entry
from vtrim.errors import InputError, MismatchError

if TYPE_CHECKING:
    from vtrim.trimming.coverage import Coverage

_MASKS = ("max_length", "last_turn_only", "heldout_percent")
_SHOWN = 5
_READERS = ("columns", "source_column")


def merge_named(names: Sequence[str], artifact: Path) -> tuple[Coverage, Record]:
    """The sum of the named artefacts, files or run folders, and what is known about it.

    Raises:
        InputError: one is missing or no coverage. MismatchError: they do not add up.
    """
    from vtrim.trimming.coverage import Coverage
    from vtrim.trimming.parts import missing_shards

    paths = [_artifact_of(name) for name in names]
    found = [(path, Coverage.load(path)) for path in paths]
    merged, record = merge(found, artifact)
    _warn_of_missing(missing_shards(merged.data_fingerprint), record)
    return merged, record


def _warn_of_missing(missing: Iterable[str], record: Record) -> None:
    """Says which shards of which files are not among the merged ones."""
    names = {file["fingerprint"]: file["path"] for file in record.data.get("files", ())}
    missing = iter(missing)
    for one in islice(missing, _SHOWN):
        place, _, file = one.partition(" of ")
        common.warn(f"shard {place} of {names.get(file, file)} is missing: its rows do not count.")
    if next(missing, None) is not None:
        common.warn("more shards are missing.")


def merge(found: Sequence[tuple[Path, Coverage]], artifact: Path) -> tuple[Coverage, Record]:
    """The sum of loaded artefacts and of their records. artifact: where it will be written.

    Raises:
        MismatchError: they do not add up.
    """
    merged = found[0][1]
    for path, coverage in found[1:]:
        try:
            merged = merged.merge(coverage)
        except MismatchError as error:
            raise MismatchError(f"{path} and those before it: {error}") from error
    known = {path: record_of(path, coverage) for path, coverage in found}
    records = [record for record in known.values() if record is not None]
    unknown = [str(path) for path, record in known.items() if record is None]
    record = _merged(records, merged) if records else _blank(merged)
    if unknown:
        common.warn(
            f"{', '.join(unknown)}: nothing beside it tells its data; search works, "
            "train-draft cannot read these conversations again."
        )
        record.data.update(files=[], unknown=unknown)
    record.data["rows_used"] = merged.rows_used
    how: dict[str, Any] = {
        "merged": [str(path) for path, _ in found],
        "seconds": round(sum(one.step.get("seconds", 0) for one in records), 3),
    }
    encoders = [name for one in records for name in (one.step.get("encoder") or "").split("+")]
    how["encoder"] = "+".join(sorted({name for name in encoders if name})) or None
    return merged, replace(record, step=step_entry(merged, artifact, **how))


def _artifact_of(name: str) -> Path:
    """The artefact that a file or a run folder names."""
    path = Path(name)
    return path / "coverage.npz" if path.is_dir() else path


def _merged(records: Sequence[Record], coverage: Coverage) -> Record:
    """One record of several; files that shards share are named once."""
    first = records[0]
    for other in records[1:]:
        _check_masks(first, other)
    names = sorted({str(record.target.get("name")) for record in records})
    if len(names) > 1:
        common.warn(f"counted for {', '.join(names)}; the run takes {first.target.get('name')}.")
    data = {
        **first.data,
        "files": _files(records, "files"),
        "generated": _files(records, "generated"),
        "skip_bad_rows": any(record.data.get("skip_bad_rows") for record in records),
    }
    if "read" in data:
        data["read"] = {**data["read"], "skip_bad_rows": data["skip_bad_rows"]}
    if any(_reader(record) != _reader(first) for record in records):
        common.warn(
            "the files were read with different --map or --source-column; search works, "
            "train-draft cannot read these conversations again as one."
        )
        data.update(files=[], unknown=[file["path"] for file in data["files"]])
    texts = {token: text for record in records for token, text in record.texts.items()}
    configs = (record.config for record in records if record.config is not None)
    return replace(
        first,
        data=data,
        target={**first.target, "stop_ids": list(coverage.stop_ids)},
        config=next(configs, None),
        texts={token: texts[token] for token in sorted(texts, key=int)},
    )


def _check_masks(one: Record, other: Record) -> None:
    """Refuses counts of other tokens of the rows: no setting of training would fit both."""
    for name in _MASKS:
        here, there = one.data.get(name) or None, other.data.get(name) or None
        if here != there:
            raise MismatchError(
                f"{name} differs: {here} in {one.step.get('artifact')}, {there} in "
                f"{other.step.get('artifact')}. Count all with the same options."
            )


def _reader(record: Record) -> dict[str, Any]:
    """The settings that tell how rows are read."""
    read = record.data.get("read", {})
    return {name: read.get(name) or None for name in _READERS}


def _files(records: Sequence[Record], key: str) -> list[dict[str, Any]]:
    """The data files of all records, one entry for each time the whole of a file was counted."""
    merged: list[dict[str, Any]] = []
    seen: Counter[str] = Counter()
    for record in records:
        own: Counter[str] = Counter()
        for file in record.data.get(key) or []:
            mark = file["fingerprint"]
            own[mark] += 1
            if own[mark] > seen[mark]:
                seen[mark] += 1
                merged.append(file)
    return merged


def _blank(coverage: Coverage) -> Record:
    """What the artefact itself tells."""
    target = {
        "name": None,
        "tokenizer": None,
        "revision": None,
        "tokenizer_fingerprint": coverage.tokenizer_fingerprint,
        "config_fingerprint": None,
        "vocab_size": coverage.target_vocab_size,
        "tokenizer_length": coverage.tokenizer_length,
        "stop_ids": list(coverage.stop_ids),
        "trust_remote_code": False,
        "chat_template": None,
    }
    return Record(target=target, data={"files": [], "max_length": None}, step={})


def check_any_reply(coverage: Coverage, where: str, why: str = "") -> None:
    """Refuses counts of nothing but end-of-turn tokens.

    Raises:
        InputError: there is no reply token.
    """
    if coverage.total == int(coverage.counts[list(coverage.stop_ids)].sum()):
        raise InputError(
            f"no assistant tokens in {where}{f' ({why})' if why else ''}. "
            "Check roles and --max-length."
        )
