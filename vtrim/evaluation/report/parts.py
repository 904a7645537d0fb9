"""What a report is made of: figures, tables of text, and the sections that hold them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from vtrim.evaluation.report.figures import Figure


@dataclass(frozen=True)
class Tile:
    """One headline number."""

    label: str
    value: str
    note: str
    unit: str = ""


@dataclass(frozen=True)
class Plot:
    """One figure with what it shows."""

    name: str
    title: str
    text: str
    figure: Figure


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table of text with what it says.

    links: address of each row's first cell, empty where there is none. drawn: a figure of the page
    shows the same, so only formats without figures print it. names: number of columns, from the
    left, that name a row. wraps: cells hold texts, which may take several lines.
    """

    name: str
    title: str
    text: str
    columns: tuple[str, ...]
    rows: list[list[str]]
    links: tuple[str, ...] = ()
    drawn: bool = False
    names: int = 1
    wraps: bool = False

    def without_empty_columns(self) -> Grid:
        """The same without the columns that say nothing in any row."""
        kept = [i for i, _ in enumerate(self.columns) if i == 0 or any(row[i] for row in self.rows)]
        return replace(
            self,
            columns=tuple(self.columns[i] for i in kept),
            rows=[[row[i] for i in kept] for row in self.rows],
            names=sum(i < self.names for i in kept),
        )


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page. lines: sentences before its figures and tables."""

    name: str
    title: str
    lines: list[str] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.lines or self.plots or self.grids)
