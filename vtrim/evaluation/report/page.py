"""The report's HTML: sections, figures and tables put into one page without outside parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtrim import __version__
from vtrim.artifacts import Run, write_text
from vtrim.evaluation.report import figures, figures_run, tables
from vtrim.evaluation.report.facts import Facts, read_facts
from vtrim.evaluation.report.figures import Figure
from vtrim.evaluation.report.rules import measured_rules

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Plot:
    """One figure with what it shows."""

    name: str
    title: str
    text: str
    figure: Figure


def write_report(run: Run, output: Path | None = None) -> dict[str, Any]:
    """Writes the page; returns the ``--json`` object: where, its size, what is in it, what is not.

    Raises:
        InputError: nothing has been run in this folder, or a file of it is not whole.
    """
    facts = read_facts(run)
    plots = list(_plots(facts))
    path = output or run.report
    write_text(path, render(facts, plots))
    return {
        "artifact": str(path),
        "bytes": path.stat().st_size,
        "plots": [plot.name for plot in plots],
        "evals": list(facts.evals),
        "missing": [name for name, _ in facts.missing],
    }


def render(facts: Facts, plots: list[Plot]) -> str:
    """The page as text. Everything from the run is escaped."""
    import jinja2
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined
    )
    drawn = {plot.name: plot.figure for plot in plots}
    return environment.get_template("page.html.j2").render(
        version=__version__,
        target=facts.target.get("name") or facts.target.get("tokenizer") or "unknown target",
        folder=str(facts.root),
        missing=facts.missing,
        cut_lines=facts.cut_lines,
        tiles=tables.tiles(facts),
        plots=plots,
        speed_columns=tables.SPEED_COLUMNS,
        speed_rows=tables.speed_rows(facts),
        provenance=tables.provenance(facts),
        figures_json=script_json(drawn),
        plotly_js=get_plotlyjs(),
        page_js=(HERE / "page.js").read_text(encoding="utf-8"),
        page_css=(HERE / "page.css").read_text(encoding="utf-8"),
    )


def script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in, whatever text it holds."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _plots(facts: Facts) -> Iterator[Plot]:
    """The figures that the run has data for, in the order of the chain."""
    yield from _vocabulary_plots(facts)
    for name, title, text, figure in (
        ("loss", "Training loss", LOSS_TEXT, figures_run.loss_figure(facts.metrics)),
        ("accuracy", "Accuracy by step", ACCURACY_TEXT, figures_run.accuracy_figure(facts.metrics)),
        ("prefix", "Held-out joint prefix", PREFIX_TEXT, figures_run.prefix_figure(facts.metrics)),
    ):
        if figure is not None:
            yield Plot(name, title, text, figure)
    rules = measured_rules(facts.evals)
    for name, title, text, figure in (
        ("speed", "Speed", SPEED_TEXT, figures_run.speed_figure(rules, tables.plain_speeds(facts))),
        ("position", "Acceptance by position", POSITION_TEXT, figures_run.position_figure(rules)),
        ("cycle", "Where a round's time goes", CYCLE_TEXT, figures_run.cycle_figure(rules)),
        ("heads", "How far the dropout heads agree", HEADS_TEXT, figures_run.heads_figure(rules)),
    ):
        if figure is not None:
            yield Plot(name, title, text, figure)


def _vocabulary_plots(facts: Facts) -> Iterator[Plot]:
    if facts.curve is not None:
        figure = figures.coverage_figure(facts.curve, facts.search)
        yield Plot("coverage", "Coverage", COVERAGE_TEXT, figure)
    if facts.search is not None:
        figure = figures.utility_figure(facts.search)
        yield Plot("utility", "Utility", utility_text(facts.search), figure)
        figure = figures.flops_figure(facts.search)
        yield Plot("flops", "FLOPs of a draft token", FLOPS_TEXT, figure)


def utility_text(search: dict[str, Any]) -> str:
    """What was searched, with which result beside the exact optimum."""
    low, high = search["plateau"]
    return (
        f"U(k) = {search['alpha']} C(k) + {1 - search['alpha']:.4g} R(k), coverage at least "
        f"{search['cmin']}. {search['trials']} TPE trials; the exact optimum is "
        f"k = {search['exact']['k']:,}, regret {search['regret']:.1e}. "
        f"Shaded: every k from {low:,} to {high:,} is within 0.001 of the optimum."
    )


COVERAGE_TEXT = (
    "Share of the target's reply tokens that a draft vocabulary of size k contains. The held-out "
    "curve ranks tokens without the held-out rows: what to expect on new text."
)
FLOPS_TEXT = (
    "Matrix products of one draft step, a multiply-add counted as two. A model, not a measurement: "
    "see the speed table for time."
)
LOSS_TEXT = "Lower is not always better: accepted length can fall while the loss still falls."
ACCURACY_TEXT = (
    "Share of rows where the draft's first choice is the target's; a target's choice outside the "
    "draft vocabulary is a miss. Step 1 is the first drafted token."
)
PREFIX_TEXT = (
    "1 + expected number of drafted tokens right in a row on held-out rows. It picks the "
    "checkpoint and exceeds the decoded acceptance length."
)
SPEED_TEXT = (
    "Tokens per second, prompts' prefill left out. Compare bars of one run only: they were decoded "
    "in alternation in one process. Green keeps the target's law; red is lossy."
)
POSITION_TEXT = "Share of the rounds in which the first j drafted tokens were all accepted."
CYCLE_TEXT = "Draft forwards, the target's forward, the acceptance rule, and everything else."
HEADS_TEXT = (
    "DropMatch judges a token by several noisy copies of the target's head. Few unanimous "
    "positions mean that the noise, not the target, decides: lower --p-drop."
)
