"""The sweeps of a run folder: what each tried, its fastest point, and where its page is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vtrim.evaluation.report.parts import Grid
from vtrim.evaluation.report.rules import UNKNOWN, decimal, interval, percent
from vtrim.evaluation.sweep_space import named


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep as its file tells. page: None where it has not come to its end."""

    name: str
    page: Path | None
    points: list[dict[str, Any]]
    acceptor: str


def read_sweeps(folder: Path) -> list[Sweep]:
    """The sweeps whose files lie in a folder, by name; a cut last line is a point not finished."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        lines = list(_objects(path))
        made = lines[0].get("made_with") if lines else None
        if isinstance(made, dict):
            page = path.with_suffix(".html")
            found.append(
                Sweep(
                    name=path.stem,
                    page=page if page.exists() else None,
                    points=[one for one in lines[1:] if isinstance(one.get("knobs"), dict)],
                    acceptor=str(made.get("acceptor name", path.stem)),
                )
            )
    return found


def sweeps_grid(sweeps: Sequence[Sweep], folder: Path) -> Grid:
    """One row a sweep. folder: where the report goes, for the links from it."""
    return Grid(
        name="sweeps",
        title="Settings that were tried",
        text="The fastest point of each sweep and what it cost; its page shows all of them. "
        "Speed-ups are over plain decoding beside each point.",
        columns=("sweep", "acceptor", "points", "fastest", "speed-up", "95 % interval",
                 "off the arg-max", "score"),
        rows=[_row(sweep) for sweep in sweeps],
        links=tuple(_link(sweep.page, folder) for sweep in sweeps),
    )  # fmt: skip


def _row(sweep: Sweep) -> list[str]:
    timed = [point for point in sweep.points if isinstance(point.get("speedup"), int | float)]
    count = f"{len(sweep.points)}" + ("" if sweep.page else " (not finished)")
    if not timed:
        return [sweep.name, sweep.acceptor, count, UNKNOWN, UNKNOWN, "", "", ""]
    best: Mapping[str, Any] = max(timed, key=lambda point: float(point["speedup"]))
    return [
        sweep.name,
        sweep.acceptor,
        count,
        named(best["knobs"]),
        decimal(best["speedup"]),
        interval(best.get("speedup_interval")),
        percent(best.get("off_argmax_share")),
        "" if best.get("score") is None else percent(best["score"], 0),
    ]


def _link(page: Path | None, folder: Path) -> str:
    """The address of a page as the report's own folder sees it."""
    if page is None:
        return ""
    return "./" + quote(Path(os.path.relpath(page, folder)).as_posix())


def _objects(path: Path) -> list[dict[str, Any]]:
    found = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            value = json.loads(text)
        except ValueError:
            break  # cut: a point that was being written
        if not isinstance(value, dict):
            break
        found.append(value)
    return found
