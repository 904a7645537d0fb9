"""``vtrim report``: one HTML page of everything a run folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from vtrim.cli import common


def report(
    run: common.RunOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="[default: report.html in the run folder]")
    ] = None,
    json_output: common.JsonOption = False,
) -> None:
    """Write one self-contained HTML page: coverage, utility, FLOPs, training, speed, provenance.

    A run that is only partly done gives a page of what is there; what is missing is named.
    """
    from vtrim.evaluation.report.page import write_report

    result = write_report(common.open_run(run), output)
    for name in result["missing"]:
        common.note(f"not in the report yet: {name}")
    if json_output:
        common.emit_json(result)
        return
    table = Table(show_header=False)
    table.add_row("report", Text(result["artifact"]))
    table.add_row("plots", ", ".join(result["plots"]))
    table.add_row("evaluations", Text(", ".join(result["evals"]) or "none"))
    table.add_row("missing", Text(", ".join(result["missing"]) or "nothing"))
    common.results.print(table)
