"""Where Optuna keeps the trials of a search: memory, a journal file or a database.

A journal is a file of JSON lines, one for each operation. A process that is killed while it writes,
or a power loss, leaves its last line cut; Optuna would glue the next record to it. So the cut part
is moved to a file of its own before the journal is used, and nothing before it is touched.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from optuna.exceptions import OptunaError
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

from vtrim.artifacts import atomic_path, lock_file
from vtrim.errors import InputError, OptionError

_START = b'{"op_code":'  # of every line that Optuna writes


@dataclass(frozen=True, slots=True)
class OpenStorage:
    """An open storage and what was repaired to open it, for the user to read."""

    backend: BaseStorage
    repaired: str | None = None


@contextmanager
def open_storage(location: str | Path | None) -> Iterator[OpenStorage]:
    """The storage at a path (a journal file) or a database URL; memory for None.

    A journal is locked until the block ends: one search at a time writes to it.

    Raises:
        InputError: the file is no journal, or cannot be written.
        OptionError: the database cannot be opened, or the journal is in use.
    """
    if location is None:
        yield OpenStorage(InMemoryStorage())
    elif "://" in str(location):
        yield from _database(str(location))
    else:
        path = Path(location)
        with _locked(path) as file:
            repaired = repair(path)
            try:
                backend = JournalStorage(_Journal(path))
            except Exception as error:  # Optuna checks no record: whatever a foreign one causes
                raise InputError(
                    f"{path}: not a journal that this Optuna can read ({error!r}): damaged, or "
                    "written by another version. Move it away or name another --storage."
                ) from error
            yield OpenStorage(backend, repaired)
            os.fsync(file.fileno())


def repair(path: Path) -> str | None:
    """Moves a cut last line of a journal aside; says so, or None when the journal is whole.

    Raises:
        InputError: a line before the last is no record, so this is no journal or a damaged one.
    """
    content = path.read_bytes()
    body, newline, tail = content.rpartition(b"\n")
    lines = body.split(b"\n") if newline else []
    for number, line in enumerate(lines, 1):
        if not _is_record(line):
            raise InputError(_not_a_journal(path, number, content))
    if not tail:
        return None
    if _is_record(tail):  # only the line's end is missing
        with path.open("ab") as file:
            file.write(b"\n")
        return None
    written = tail.rstrip(b"\0")  # zeros: blocks that a power loss left unwritten
    if not (written.startswith(_START) or _START.startswith(written)):
        raise InputError(_not_a_journal(path, len(lines) + 1, content))
    aside = _free_name(path)
    with atomic_path(aside) as temporary:
        temporary.write_bytes(tail)
    os.truncate(path, len(content) - len(tail))
    return (
        f"{path}: the last record was cut ({len(tail)} bytes, moved to {aside.name}); "
        f"the {len(lines)} records before it are whole."
    )


class _Journal(JournalFileBackend):
    """Optuna's journal file, written under the lock of the whole search.

    Its own lock for each record outlives a killed process for 30 s, and a sync for each record
    takes seconds on a network disk: records survive a killed process without.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        lines = [json.dumps(log, separators=(",", ":")) + "\n" for log in logs]
        try:
            with self._path.open("ab") as file:
                file.write("".join(lines).encode())
        except OSError as error:
            raise InputError(
                f"{self._path}: cannot be written ({error.strerror or error}). Free some space or "
                "name another --storage."
            ) from error


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """The file, made if it is not there, for this process alone (where the system can lock)."""
    try:
        file = path.open("ab")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be opened as a journal ({error.strerror or error}). Name a file in a "
            "folder that exists, or a URL such as sqlite:///trials.db."
        ) from error
    with file:
        taken = OptionError(
            f"{path}: another search is writing to this journal. Wait for it or name another "
            "--storage."
        )
        lock_file(file, taken)
        yield file


def check_url(url: str) -> None:
    """Refuses a database URL that cannot be read or whose driver is missing; opens nothing.

    Raises:
        OptionError: it is such a one.
    """
    from sqlalchemy import create_engine

    try:
        create_engine(url).dispose()
    except Exception as error:  # whatever SQLAlchemy and its drivers raise
        raise _not_opened(url, error) from error


def _not_opened(url: str, error: Exception) -> OptionError:
    reason = " ".join(str(error).split()) or repr(error)
    return OptionError(
        f"--storage {url}: cannot be opened ({reason[:200]}). Name a journal file or a URL "
        "such as sqlite:///trials.db."
    )


def _database(url: str) -> Iterator[OpenStorage]:
    """The database of that URL; what goes wrong in it later is named too."""
    try:
        from sqlalchemy.exc import SQLAlchemyError

        storage = RDBStorage(url)
    except Exception as error:  # whatever SQLAlchemy and its drivers raise
        raise _not_opened(url, error) from error
    try:
        yield OpenStorage(storage)
    except (OptunaError, SQLAlchemyError) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise InputError(
            f"--storage {url}: cannot be used ({reason[:200]}). Run one search at a time on it, or "
            "name another --storage."
        ) from error
    finally:
        storage.engine.dispose()


def _is_record(line: bytes) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and "op_code" in record


def _not_a_journal(path: Path, line: int, content: bytes) -> str:
    if content.startswith(b"SQLite format 3"):
        return f"{path}: an SQLite database, not a journal. Write it as sqlite:///{path}."
    return (
        f"{path}:{line}: not a record of an Optuna journal. Nothing was changed; name another "
        "--storage, or move the file away."
    )


def _free_name(path: Path) -> Path:
    """A name beside the journal that no earlier cut part bears."""
    number = 1
    while (aside := path.with_name(f"{path.name}.cut{number}")).exists():
        number += 1
    return aside
