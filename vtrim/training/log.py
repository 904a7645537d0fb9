"""train/metrics.jsonl: one JSON object a line, cut back to the checkpoint on resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vtrim.artifacts import write_text


class MetricsLog:
    """Appends measurements; every line is flushed, so a kill loses at most the line in writing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, entry: dict[str, Any]) -> None:
        """Adds one line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(entry) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """All whole lines; a last line that a kill cut is left out."""
        if not self.path.exists():
            return []
        entries = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                entries.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return entries

    def cut_back(self, step: int) -> None:
        """Drops what was measured after ``step``: it will be measured again."""
        kept = [entry for entry in self.read() if entry["step"] <= step]
        write_text(self.path, "".join(json.dumps(entry) + "\n" for entry in kept))
