"""train/metrics.jsonl: one JSON object a line; DeepSpeed's monitor gets the same numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vtrim.artifacts import write_text
from vtrim.errors import InputError


class MetricsLog:
    """Appends measurements, a line in one write: a kill loses at most the line in writing."""

    def __init__(self, path: Path, monitor: Any = None) -> None:
        """monitor: DeepSpeed's, which writes TensorBoard, CSV and the like; None for none."""
        self.path = path
        self.monitor = monitor if monitor is not None and monitor.enabled else None

    def append(self, entry: dict[str, Any]) -> None:
        """Adds one line.

        Raises:
            InputError: the disk is full; the line is not counted, the file is mended on resume.
        """
        line = (json.dumps(entry, allow_nan=False) + "\n").encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab", buffering=0) as handle:
                whole = handle.write(line) == len(line)
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be written ({error.strerror}). The last checkpoint is whole; "
                "free some space and run the same line again."
            ) from error
        if not whole:
            raise InputError(
                f"{self.path}: only a part of a line could be written. The last checkpoint is "
                "whole; free some space and run the same line again."
            )
        if self.monitor is not None:
            self.monitor.write_events(list(_events(entry)))

    def read(self) -> list[dict[str, Any]]:
        """All whole lines; a last line that a kill cut is left out."""
        if not self.path.exists():
            return []
        entries = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entries.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return entries

    def cut_back(self, step: int, checked: int) -> None:
        """Drops what will be measured again: steps after ``step``, checks after ``checked``."""
        last = {"train": step, "skipped": step}
        kept = [e for e in self.read() if e["step"] <= last.get(e["kind"], checked)]
        write_text(self.path, "".join(json.dumps(entry) + "\n" for entry in kept))


def _events(entry: dict[str, Any]) -> Iterator[tuple[str, float, int]]:
    """An entry as (name, value, step): lists get an index, what is no number is left out."""
    title = entry["kind"].title()
    for name, value in entry.items():
        values = {f"{name}_{i}": v for i, v in enumerate(value)} if isinstance(value, list) else {}
        for label, number in (values or {name: value}).items():
            if isinstance(number, int | float) and name not in ("step", "samples"):
                yield f"{title}/{label}", float(number), entry["step"]
