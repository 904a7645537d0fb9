"""The file of a sweep: what it was made with, then a line for each finished point.

A process that is killed while it writes leaves its last line cut; that line is taken off before the
file is used again, and its point is measured again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from vtrim.artifacts import lock_file
from vtrim.errors import InputError, MismatchError, OptionError
from vtrim.evaluation.sweep_space import Point

_KIND = "vtrim sweep"


class SweepLog:
    """The finished points of a sweep, in the order in which they were measured.

    cut: bytes of a half-written last line that were taken off.
    """

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self.points: list[dict[str, Any]] = []
        self.cut = 0
        self._file = file

    def find(self, point: Point) -> dict[str, Any] | None:
        """The numbers of a point that was measured."""
        return next((line for line in self.points if line["knobs"] == point), None)

    def add(self, line: Mapping[str, Any]) -> None:
        """Keeps a finished point; it is on the disk when this returns.

        Raises:
            InputError: the disk is full.
        """
        self._write(line)
        self.points.append(dict(line))

    def _write(self, line: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be written ({error.strerror or error}). Free some space and "
                "call again: finished points are kept."
            ) from error

    def start(self, made_with: Mapping[str, Any]) -> None:
        """Reads what the file holds, or begins it.

        Raises:
            InputError: it is not a sweep's. MismatchError: it was made with something else.
        """
        made_with = json.loads(json.dumps(dict(made_with)))  # as the file holds it: no tuples
        self._file.seek(0)
        content = self._file.read()
        whole, newline, tail = content.rpartition(b"\n")
        if tail:
            self.cut = len(tail)
            self._file.truncate(len(content) - len(tail))
        if not newline:
            self._write({"kind": _KIND, "made_with": made_with})
            return
        first, *lines = (self._parsed(i, line) for i, line in enumerate(whole.split(b"\n"), 1))
        if first.get("kind") != _KIND or not isinstance(first.get("made_with"), dict):
            raise InputError(f"{self.path}: not the file of a sweep. Give another --name.")
        self._check(first["made_with"], made_with)
        for number, line in enumerate(lines, 2):
            if not isinstance(line.get("knobs"), dict):
                raise InputError(f"{self.path}:{number}: no point of a sweep. Give another --name.")
        self.points = lines

    def _parsed(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            value = json.loads(line)
        except ValueError as error:
            raise InputError(
                f"{self.path}:{number}: damaged: not JSON. Move the file away, or give another "
                "--name."
            ) from error
        if not isinstance(value, dict):
            raise InputError(f"{self.path}:{number}: not the file of a sweep. Give another --name.")
        return value

    def _check(self, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
        for name in sorted({*there, *here}):
            if there.get(name) != here.get(name):
                raise MismatchError(
                    f"{self.path}: its points were measured with another {name}: "
                    f"{_short(there.get(name))} there, {_short(here.get(name))} now. Give another "
                    "--name, or remove the file to start anew."
                )


@contextmanager
def open_log(path: Path) -> Iterator[SweepLog]:
    """The file of a sweep, locked until the block ends.

    Raises:
        OptionError: another sweep is writing to it. InputError: it cannot be opened.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be opened ({error.strerror or error}). Choose another --run."
        ) from error
    with file:
        lock_file(
            file, OptionError(f"{path}: another sweep is writing to it. Give another --name.")
        )
        yield SweepLog(path, file)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
