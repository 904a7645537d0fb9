"""``vtrim report``: one HTML page of everything a run folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    for line in result["notes"]:
        common.warn(line)
    for name in result["missing"]:
        common.note(f"not in the report yet: {name}")
    if json_output:
        common.emit_json(result)
        return
    for label, names in (("plots", result["plots"]), ("evaluations", result["evals"])):
        common.results.print(f"{label}: {', '.join(names) or 'none'}", markup=False)
    # never wrapped, so that the path can be copied
    common.results.print(f"report: {result['artifact']}", markup=False, soft_wrap=True)
