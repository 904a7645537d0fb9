"""Counters of a server's ``/metrics`` page, in the text format of Prometheus."""

from __future__ import annotations

import math
import re

from vtrim.errors import InputError

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Counters = dict[str, dict[str, float]]
"""Per name, the sum over engines for each ``position`` (empty where there is none)."""


def counters(text: str, names: tuple[str, ...], where: str) -> Counters:
    """The counters of these names, ``_total`` left out; one that is not there is not in the result.

    Raises:
        InputError: a value is no finite number; names where it was read.
    """
    found: Counters = {}
    for line in text.splitlines():
        sample = _SAMPLE.match(line)
        name = sample[1].removesuffix("_total") if sample else ""
        if sample is None or name not in names:
            continue
        position = dict(_LABEL.findall(sample[2] or "")).get("position", "")
        by_position = found.setdefault(name, {})
        by_position[position] = by_position.get(position, 0.0) + _number(sample[3], name, where)
    return found


def _number(text: str, name: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{where}: {name} is {text}, not a count: restart the server.")
    return value
