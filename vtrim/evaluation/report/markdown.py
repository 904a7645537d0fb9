"""A report as Markdown: what the page says, tables in place of figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from vtrim import __version__
from vtrim.evaluation.report.document import Document
from vtrim.evaluation.report.parts import Grid, Section

_MARKUP = re.compile(r"[\\`*\[\]<>|&#~]|(?<![^\W_])_|_(?![^\W_])")
"""What Markdown would read as more than text; an underscore inside a word is none."""


def markdown(document: Document) -> str:
    """The report as text. Everything from the run is escaped."""
    return "\n".join(_lines(document)).rstrip() + "\n"


def plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.split()))


def _lines(document: Document) -> Iterator[str]:
    yield f"# {plain(document.title)}"
    yield ""
    folders = ", ".join(map(plain, document.folders))
    yield f"vtrim {__version__} report of {folders}"
    yield ""
    yield from _list("Before you read the numbers", map(plain, document.notes))
    gaps = (f"{plain(name)}: type {plain(command)}" for name, command in document.missing)
    yield from _list("Not in this report yet", gaps)
    if document.tiles:
        yield "## Headline"
        yield ""
        rows = [[tile.label, f"{tile.value} {tile.unit}", tile.note] for tile in document.tiles]
        yield from _table(("what", "value", "note"), rows, 1, ())
    for section in document.sections:
        yield from _section(section)
    if document.provenance:
        yield "## Settings and provenance"
        yield ""
    for heading, pairs in document.provenance:
        yield f"### {plain(heading)}"
        yield ""
        yield from _table(("key", "value"), [list(pair) for pair in pairs], 2, ())


def _section(section: Section) -> Iterator[str]:
    if not (section.lines or section.grids):
        return
    yield f"## {section.title}"
    yield ""
    for line in section.lines:
        yield plain(line)
        yield ""
    for grid in section.grids:
        yield from _grid(grid)


def _grid(grid: Grid) -> Iterator[str]:
    yield f"### {plain(grid.title)}"
    yield ""
    yield plain(grid.text)
    yield ""
    yield from _table(grid.columns, grid.rows, grid.names, grid.links)


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], names: int, links: Sequence[str]
) -> Iterator[str]:
    """A table; its first columns, which name a row, to the left, numbers to the right."""
    yield _row(map(plain, columns))
    yield _row(":--" if i < names else "--:" for i, _ in enumerate(columns))
    for number, row in enumerate(rows):
        cells = [plain(cell) for cell in row]
        if links and links[number]:
            cells[0] = f"[{cells[0]}](<{links[number]}>)"
        yield _row(cells)
    yield ""


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _list(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield f"## {title}"
        yield ""
        yield from (f"- {line}" for line in found)
        yield ""
