"""Writes a report of one run, or of several side by side, as a page, Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vtrim.artifacts import Run, write_text
from vtrim.errors import OptionError
from vtrim.evaluation.report.document import Document, of_run
from vtrim.evaluation.report.facts import read_facts
from vtrim.evaluation.report.markdown import markdown
from vtrim.evaluation.report.page import finite, html
from vtrim.evaluation.report.versus import of_runs

FORMATS = ("html", "md", "json")


def write_report(
    runs: Sequence[Run], output: Path | None = None, kind: str | None = None
) -> dict[str, Any]:
    """Writes the report; the ``--json`` object: where, its size, what is in it, what is not.

    kind: of FORMATS; None: what the name of ``output`` says, else a page.

    Raises:
        InputError: nothing has been run in a folder, or a file of it is not whole.
        OptionError: there is no such format, or a folder is named twice.
    """
    kind = _kind(output, kind)
    path = output or default_output(runs, kind)
    facts = [read_facts(run) for run in runs]
    document = of_run(facts[0], path.parent) if len(runs) == 1 else of_runs(facts)
    write_text(path, _text(document, kind))
    return {
        "artifact": str(path),
        "format": kind,
        "bytes": path.stat().st_size,
        "runs": document.folders,
        "plots": document.plots if kind == "html" else [],
        "evals": document.evals,
        "missing": [name for name, _ in document.missing],
        "notes": document.notes,
    }


def default_output(runs: Sequence[Run], kind: str) -> Path:
    """report.html in the run folder; of several runs, vtrim-report.html in the current one."""
    own = runs[0].report.with_suffix(f".{kind}")
    return own if len(runs) == 1 else Path(f"vtrim-report.{kind}")


def _kind(output: Path | None, kind: str | None) -> str:
    if kind is None:
        suffix = "" if output is None else output.suffix.lower().lstrip(".")
        if suffix not in ("", *FORMATS):
            raise OptionError(
                f"--output {output}: ends in none of {', '.join(FORMATS)}; give --format."
            )
        return suffix or FORMATS[0]
    if kind not in FORMATS:
        raise OptionError(f"--format {kind}: unknown. Known: {', '.join(FORMATS)}.")
    return kind


def _text(document: Document, kind: str) -> str:
    if kind == "html":
        return html(document)
    if kind == "md":
        return markdown(document)
    return json.dumps(finite(document.to_json()), indent=1, ensure_ascii=False) + "\n"
