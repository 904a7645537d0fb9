"""What there is to read: files, saved data sets and data sets of the hub."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from vtrim.artifacts import fingerprint_file, fingerprint_json
from vtrim.chat import hub_data, saved, tables
from vtrim.chat.json_rows import json_rows
from vtrim.chat.rows import Opened, Shard
from vtrim.chat.streams import PARQUET, first_bytes, open_file, unpacked
from vtrim.chat.visible import one_line
from vtrim.errors import InputError, OptionError

Format = Literal["jsonl", "parquet", "dataset", "hub"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One thing to read. name: as typed; size: [bytes], 0 where unknown.

    split, config, revision: of a saved data set or of one on the hub.
    """

    name: str
    format: Format
    size: int = 0
    split: str | None = None
    config: str | None = None
    revision: str | None = None

    @property
    def label(self) -> str:
        """The name as it stands before a row's number."""
        return self.name if self.split is None else f"{self.name}[{self.split}]"

    @property
    def path(self) -> str:
        """The absolute path, or the id on the hub."""
        return self.name if self.format == "hub" else str(Path(self.name).resolve())

    def fingerprint(self) -> str:
        """Fingerprint of the content: of the file, of all files in order, of the hub's commit.

        Raises:
            InputError: a file is missing or cannot be read.
        """
        if self.format == "hub":
            return fingerprint_json([self.name, self.config, self.split, self.revision])
        with readable(self.name):
            if self.format == "dataset":
                return fingerprint_json([fingerprint_file(file) for file in self._files()])
            return fingerprint_file(Path(self.name))

    def describe(self) -> dict[str, Any]:
        """What ``run.json`` keeps of it, from which it can be read again."""
        described: dict[str, Any] = {
            "path": self.path,
            "bytes": self.size,
            "fingerprint": self.fingerprint(),
            "format": self.format,
            "split": self.split,
        }
        if self.format == "hub":
            described.update(config=self.config, revision=self.revision)
        return described

    @classmethod
    def from_description(cls, described: Mapping[str, Any]) -> Source:
        """The source that ``describe`` told of; a format that is not told is looked up.

        Raises:
            InputError: its file cannot be read, or the format is unknown.
        """
        path = str(described["path"])
        kind = described.get("format") or _format(Path(path))
        if kind not in get_args(Format):
            raise InputError(f"{path}: unknown format {kind!r}; a newer vtrim wrote this run.")
        return cls(
            name=path,
            format=cast(Format, kind),
            size=int(described.get("bytes", 0)),
            split=described.get("split"),
            config=described.get("config"),
            revision=described.get("revision"),
        )

    def open(
        self, shard: Shard, more_columns: Sequence[str] | None
    ) -> AbstractContextManager[Opened]:
        """The rows. more_columns: of tables, to be read besides those of known forms; None: all.

        Raises:
            InputError: it is missing, or cannot be read at all.
        """
        path = Path(self.name)
        if self.format == "parquet":
            return tables.open_parquet(path, shard, more_columns)
        if self.format == "dataset":
            return tables.open_arrow(self._files(), shard, more_columns)
        if self.format == "hub":
            return hub_data.open_hub(self.name, self.config, self.split, self.revision, shard)
        return _open_json(path, shard)

    def _files(self) -> list[Path]:
        with readable(self.name):
            return saved.saved_files(saved.saved_folder(Path(self.name), self.split))


def expand(
    names: Sequence[str], *, split: str | None = None, offline: bool = False
) -> list[Source]:
    """The sources that typed names stand for: files, globs, saved data sets, ids of the hub.

    offline: ids of the hub are refused.

    Raises:
        InputError: a name stands for nothing that can be read; a split is missing or unknown.
        OptionError: ``split`` is given and nothing has splits.
    """
    sources = [source for name in names for source in _expand(str(name), split, offline)]
    if split is not None and not any(one.format in ("dataset", "hub") for one in sources):
        raise OptionError(f"--split {split}: no input is a data set with splits.")
    return sources


def without_repeats(sources: Iterable[Source]) -> tuple[list[Source], list[str]]:
    """Each source once, and the names of those that name one again (by a link, a glob, ...)."""
    seen: dict[tuple[str, str | None], Source] = {}
    repeats = []
    for source in sources:
        if source.format == "hub":
            place = f"{source.name}[{source.split}]"
        else:  # a split of a saved data set is a folder in it
            place = str(Path(source.name, source.split or "").resolve())
        if seen.setdefault((place, source.config), source) is not source:
            repeats.append(source.label)
    return list(seen.values()), repeats


def as_sources(given: Iterable[Source | str | Path]) -> list[Source]:
    """Sources as they are, and those that names stand for."""
    return [
        source
        for one in given
        for source in ([one] if isinstance(one, Source) else expand([str(one)]))
    ]


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Tells of a file or folder that cannot be read in one way."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{one_line(name)}: no such file.") from error
    except OSError as error:
        raise InputError(f"{one_line(name)}: cannot be read ({error.strerror}).") from error


def _expand(name: str, split: str | None, offline: bool) -> list[Source]:
    with readable(name):
        sources = _found(name, split, offline)
    for source in sources:
        try:
            source.path.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"{one_line(source.path)}: the name is not UTF-8, so that no run can tell of it. "
                "Rename it or its folder."
            ) from error
    return sources


def _found(name: str, split: str | None, offline: bool) -> list[Source]:
    path = Path(name)
    if path.is_dir():
        return [_dataset(name, split)]
    if path.exists():
        return [_file(name)]
    if glob.has_magic(name):
        matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207 - patterns may be absolute
        found = [Path(one) for one in matches]
        found = [one for one in found if one.is_file() or saved.is_saved(one)]
        if not found:
            raise InputError(
                f"{one_line(name)}: matches no file. Check the pattern and the folder."
            )
        return [_dataset(str(one), split) if one.is_dir() else _file(str(one)) for one in found]
    return [_hub(name, split, offline)]


def _file(name: str) -> Source:
    path = Path(name)
    if not path.is_file():
        raise InputError(
            f"{name}: not a regular file. It is read more than once: save it as a file first."
        )
    return Source(name=name, format=_format(path), size=path.stat().st_size)


def _format(path: Path) -> Format:
    """The format of a file by its first bytes, or that of a folder."""
    if path.is_dir():
        return "dataset"
    head = first_bytes(path)
    if head.startswith(PARQUET):
        return "parquet"
    if path.suffix == ".parquet" and head:
        raise InputError(f"{path}: not a whole parquet file (it does not begin with PAR1).")
    return "jsonl"


def _dataset(name: str, split: str | None) -> Source:
    folder = saved.saved_folder(Path(name), split)
    size = sum(file.stat().st_size for file in saved.saved_files(folder))
    picked = folder.name if folder != Path(name) else None
    return Source(name=name, format="dataset", size=size, split=picked)


def _hub(name: str, split: str | None, offline: bool) -> Source:
    """The data set on the hub, where the name looks like one and like no path of this machine."""
    parsed = hub_data.parse_hub_id(name)
    if parsed is None or Path(name).parent.is_dir() or Path(name).suffix in _FILE_SUFFIXES:
        raise InputError(f"{one_line(name)}: no such file.")
    if offline:
        raise InputError(
            f"{name}: no such file here, and --offline keeps from the hub. "
            f"Name a folder made by {hub_data.SAVE}."
        )
    hub_id, config = parsed
    revision = hub_data.hub_revision(hub_id)
    if split is None:
        names = ", ".join(hub_data.hub_splits(hub_id, config, revision))
        there = f"; the splits are {names}" if names else ""
        raise InputError(f"{name}: a data set on the hub; give one split with --split{there}.")
    return Source(name=hub_id, format="hub", split=split, config=config, revision=revision)


_FILE_SUFFIXES = (".jsonl", ".json", ".gz", ".zst", ".parquet", ".arrow", ".txt", ".csv", ".tsv")


@contextmanager
def _open_json(path: Path, shard: Shard) -> Iterator[Opened]:
    with open_file(path) as raw:
        stream = unpacked(raw)  # held to the end: Arrow's stream closes the file when it goes
        yield Opened(json_rows(stream, shard), raw.tell)
