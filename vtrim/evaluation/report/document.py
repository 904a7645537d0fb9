"""A report before it takes a format: what a page, Markdown and JSON all say."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vtrim import __version__
from vtrim.evaluation.report import tables
from vtrim.evaluation.report.explorer import Explorer, explorer
from vtrim.evaluation.report.facts import Facts
from vtrim.evaluation.report.parts import Grid, Section, Tile
from vtrim.evaluation.report.reasons import Table, reason_tables
from vtrim.evaluation.report.sections import sections

_CURVES = ("curve", "trial_log")


@dataclass(frozen=True, kw_only=True)
class Document:
    """A report's content.

    folders: of the runs it is about. missing: (step, what to type). sizes: the slider's data;
    reasons: tables whose rows the slider can go to. provenance: (heading, (key, value) pairs).
    evals: names of the results. data: the runs' own numbers, as JSON holds them.
    """

    title: str
    folders: list[str]
    notes: list[str]
    missing: list[tuple[str, str]]
    sections: list[Section]
    tiles: list[Tile] = field(default_factory=list)
    sizes: Explorer | None = None
    reasons: list[Table] = field(default_factory=list)
    provenance: list[tuple[str, list[tuple[str, str]]]] = field(default_factory=list)
    evals: list[str]
    data: dict[str, Any]

    @property
    def plots(self) -> list[str]:
        """Names of the figures."""
        return [plot.name for section in self.sections for plot in section.plots]

    def to_json(self) -> dict[str, Any]:
        """Everything but the figures: headline and tables as text, then the numbers."""
        return {
            "vtrim": __version__,
            "title": self.title,
            "runs": self.folders,
            "notes": self.notes,
            "missing": [name for name, _ in self.missing],
            "headline": [asdict(tile) for tile in self.tiles],
            "tables": [
                _table(section, grid) for section in self.sections for grid in section.grids
            ],
            **self.data,
        }


def of_run(facts: Facts, folder: Path) -> Document:
    """The report of one run. folder: where it goes, for links from it."""
    sizes = explorer(facts)
    return Document(
        title=target_name(facts),
        folders=[str(facts.root)],
        notes=list(facts.notes),
        missing=facts.missing,
        sections=sections(facts, sizes, folder),
        tiles=tables.tiles(facts),
        sizes=sizes,
        reasons=reason_tables(facts.search),
        provenance=tables.provenance(facts),
        evals=list(facts.evals),
        data=numbers(facts),
    )


def target_name(facts: Facts) -> str:
    """The target as the run names it, else as its results do."""
    measured = ((result.get("provenance") or {}).get("target") for result in facts.evals.values())
    own = facts.target.get("name") or facts.target.get("tokenizer")
    return str(own or next(filter(None, measured), "unknown target"))


def numbers(facts: Facts) -> dict[str, Any]:
    """What the run's files say, without curves and without what each prompt gave."""
    search = facts.search
    return {
        "target": facts.target,
        "data": facts.manifest.get("data") or {},
        "steps": facts.steps,
        "search": search and {key: v for key, v in search.items() if key not in _CURVES},
        "step_times": facts.step_times,
        "evals": {
            name: {key: value for key, value in result.items() if key != "per_prompt"}
            for name, result in facts.evals.items()
        },
    }


def _table(section: Section, grid: Grid) -> dict[str, Any]:
    return {
        "section": section.name,
        "name": grid.name,
        "title": grid.title,
        "columns": list(grid.columns),
        "rows": grid.rows,
    }
