"""Finished prompts of a measurement that is not: kept until it is, a line each."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vtrim.artifacts import fingerprint_json
from vtrim.errors import InputError
from vtrim.evaluation.engines.reply import Batch, EngineCounts, EngineReply

Pair = dict[str, Batch]
"""What each engine said of the same prompts."""


class PartFile:
    """What was measured so far of one measurement.

    key: all that decides it; of another measurement nothing is read, and it is written over.
    """

    def __init__(self, path: Path, key: Mapping[str, Any]) -> None:
        self.path = path
        self._head = {"measurement": fingerprint_json(key)}
        self._end = 0  # of the whole lines [bytes]
        self._found = self._read()

    @property
    def found(self) -> int:
        """Number of prompts, or batches, that need not be asked again."""
        return len(self._found)

    def get(self, place: str) -> Pair | None:
        """What was said of the prompts at a place."""
        return self._found.get(place)

    def add(self, place: str, pair: Pair) -> None:
        """Writes down what was said.

        Raises:
            InputError: it cannot be written.
        """
        lines: list[dict[str, Any]] = [] if self._found else [dict(self._head)]
        lines.append({"place": place, "said": {name: asdict(one) for name, one in pair.items()}})
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("r+b" if self._found else "wb") as file:
                file.seek(self._end)
                file.write("".join(json.dumps(line) + "\n" for line in lines).encode())
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
                self._end = file.tell()
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be written ({error.strerror or error})."
            ) from error
        self._found[place] = pair

    def _read(self) -> dict[str, Pair]:
        """The whole lines of this measurement; a line that was cut by a crash is asked again."""
        if not self.path.exists():
            return {}
        found: dict[str, Pair] = {}
        with self.path.open("rb") as file:
            for index, line in enumerate(file):
                try:
                    value = json.loads(line)
                except ValueError:
                    break
                if not line.endswith(b"\n") or (index == 0 and value != self._head):
                    break
                if index:
                    said = value["said"].items()
                    found[value["place"]] = {name: _batch(one) for name, one in said}
                    self._end = file.tell()
        return found


def _batch(value: Mapping[str, Any]) -> Batch:
    """A batch as it was written."""
    counts = value["counts"]
    if counts is not None:
        counts = EngineCounts(**{**counts, "by_position": tuple(counts["by_position"])})
    replies = (
        EngineReply(**{**reply, "tokens": None if (ids := reply["tokens"]) is None else tuple(ids)})
        for reply in value["replies"]
    )
    return Batch(tuple(replies), counts)
