"""``vtrim report``: everything that a run folder holds, or several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vtrim.cli import common
from vtrim.errors import OptionError


def report(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Run folders; two or more stand side by side (default: that of --run).",
            show_default=False,
        ),
    ] = None,
    run: common.RunOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="[default: report.html in the run folder; vtrim-report.html here for several]",
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--format", help="html, md or json [default: what --output ends in, else html]"
        ),
    ] = None,
    json_output: common.JsonOption = False,
) -> None:
    """Write one self-contained page: speed, quality, acceptance, vocabulary, costs, provenance.

    A run that is only partly done gives a page of what is there; what is missing is named.

    Example: vtrim report run-general run-ner -o both.html
    """
    from vtrim.evaluation.report.write import write_report

    if runs and run is not None:
        raise OptionError(f"--run {run}: stands beside the run {runs[0]}; name all of them alike.")
    named = [common.open_run(folder) for folder in runs or ()]
    result = write_report(named or [common.open_run(run)], output, kind)
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
