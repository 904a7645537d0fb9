"""How a search is shown: one table and a few lines that put it into proportion."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from vtrim.cli import common
from vtrim.trimming.search import SearchResult
from vtrim.trimming.utility import Point


def print_search(result: SearchResult, artifact: Path) -> None:
    """Prints the table on stdout and where the vocabulary went on stderr."""
    common.results.print(_table(result))
    for line in _lines(result):
        common.results.print(line, markup=False, soft_wrap=True)
    common.note(f"{artifact} written: {result.chosen.k:,} ids (sampler {result.settings.sampler}).")


def _table(result: SearchResult) -> Table:
    settings = result.settings
    title = f"Draft vocabulary: alpha {float(settings.alpha):g}, cmin {float(settings.cmin):g}"
    table = Table(title=title)
    table.add_column("sampler")
    columns = ("k", "coverage", "held-out coverage", "FLOPs saved", "utility")
    for name in columns:
        table.add_column(name, justify="right")
    for name, point in (("tpe", result.tpe), ("exact", result.exact)):
        mark = " *" if name == settings.sampler else ""
        table.add_row(name + mark, *_cells(result, point))
    table.caption = "* written"
    return table


def _cells(result: SearchResult, point: Point) -> tuple[str, ...]:
    heldout = result.curve.heldout_coverage(point.k)
    return (
        f"{point.k:,}",
        f"{point.coverage:.2%}",
        "-" if heldout is None else f"{heldout:.2%}",
        f"{point.flops_reduction:.2%}",
        f"{point.utility:.6f}",
    )


def _lines(result: SearchResult) -> list[str]:
    objective, curve = result.objective, result.curve
    feasible = sum(trial.feasible for trial in result.trials)
    low, high = result.plateau
    lines = [
        f"regret of TPE: {result.regret:.1e} after {len(result.trials)} trials "
        f"({feasible} hold the floor), k {objective.kmin:,} to {objective.kmax:,}",
        f"plateau: every k from {low:,} to {high:,} is within 0.001 of the best utility",
        f"FLOPs a draft token: {objective.flops_full:,} -> {objective.flops(result.chosen.k):,}",
    ]
    if result.floor_binds:
        free = objective.optimum(floor=False)
        lines.append(f"the floor cmin decides: by utility alone the best k is {free:,}")
    frequency = result.marginal_frequency
    if frequency:
        lines.append(f"rarest kept token: 1 in {round(1 / frequency):,} reply tokens")
    if curve.forced:
        ids = ", ".join(map(str, curve.forced))
        lines.append(f"forced: {curve.num_forced} (ids {ids})")
    if result.num_filled:
        lines.append(f"filled: {result.num_filled:,} ids that no reply uses, the lowest ones")
    return lines
