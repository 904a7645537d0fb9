"""The rows of dropmatch_run.py in one small file: what the page needs, a list a generation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from dropmatch_rows import Measured

COUNTS = ("emitted", "rounds", "off_argmax", "log_prob", "prefix")
PHASES = ("draft", "verify", "accept", "other")
COLUMNS = ("prompt", *COUNTS, *PHASES)
Line = dict[str, Any]


def fold(measured: Sequence[Measured]) -> str:
    """All rows as JSON, a rule of a set a line: replies and prefill times are left out."""
    return "[\n" + ",\n".join(_drafter(one) for one in measured) + "\n]\n"


def unfold(record: Sequence[Line]) -> list[Measured]:
    """What was folded, a drafter each."""
    return [Measured(one["facts"], list(_lines(one))) for one in record]


def _drafter(measured: Measured) -> str:
    rows: dict[str, list[list[Any]]] = {}
    heads: dict[str, list[Line]] = {}
    for line in measured.lines:
        key = f"{line['set']} | {line['rule']}"
        rows.setdefault(key, []).append(_values(line))
        noted = line.get("heads", {})
        if len(noted) > 1 or "p=auto" in key:  # else p alone, which the rule says
            heads.setdefault(key, []).append(noted)
    parts = [f'"facts": {json.dumps(measured.facts)}', f'"columns": {json.dumps(COLUMNS)}']
    for name, found in (("rows", rows), ("heads", heads)):
        lines = [f" {json.dumps(key)}: {json.dumps(values)}" for key, values in found.items()]
        parts.append(f'"{name}": {{\n' + ",\n".join(lines) + "\n}")
    return "{" + ",\n".join(parts) + "}"


def _lines(record: Line) -> Iterator[Line]:
    for key, rows in record["rows"].items():
        name, rule = key.split(" | ")
        for place, values in enumerate(rows):
            found = dict(zip(record["columns"], values, strict=True))
            line = {"set": name, "rule": rule, "prompt": found["prompt"]}
            line |= {one: found[one] for one in COUNTS if found[one] is not None}
            line["seconds"] = {"prefill": 0.0, **{phase: found[phase] for phase in PHASES}}
            if key in record["heads"]:
                line["heads"] = record["heads"][key][place]
            yield line


def _values(line: Line) -> list[Any]:
    counts = [line.get(name) for name in COUNTS]
    if counts[-1] is not None:
        counts[-1] = round(counts[-1], 8)
    return [line["prompt"], *counts, *(line["seconds"].get(phase, 0.0) for phase in PHASES)]
