"""The report's HTML: sections, figures and tables put into one page without outside parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtrim import __version__
from vtrim.artifacts import Run, write_text
from vtrim.evaluation.diagnosis import diagnosis
from vtrim.evaluation.report import figures, figures_run, figures_sizes, tables
from vtrim.evaluation.report.explorer import Explorer, explorer, static_sizes
from vtrim.evaluation.report.facts import Facts, read_facts
from vtrim.evaluation.report.figures import Figure
from vtrim.evaluation.report.reasons import reason_tables
from vtrim.evaluation.report.rules import measured_rules, percent

HERE = Path(__file__).parent
SCRIPTS = ("page.js", "explorer.js")
READOUTS = {
    "k": "size k",
    "coverage": "coverage C(k)",
    "heldout": "held-out C(k)",
    "reduction": "FLOPs saved R(k)",
    "utility": "utility U(k)",
    "speed": "tokens/s",
    "misses": "first miss",
}


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
    sizes = explorer(facts)
    plots = list(_plots(facts, sizes))
    path = output or run.report
    write_text(path, render(facts, plots, sizes))
    return {
        "artifact": str(path),
        "bytes": path.stat().st_size,
        "plots": [plot.name for plot in plots],
        "evals": list(facts.evals),
        "missing": [name for name, _ in facts.missing],
        "notes": list(facts.notes),
    }


def render(facts: Facts, plots: list[Plot], sizes: Explorer | None) -> str:
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
        notes=facts.notes,
        tiles=tables.tiles(facts),
        **_explorer_parts(facts, sizes),
        plots=plots,
        speed_columns=tables.SPEED_COLUMNS,
        speed_rows=tables.speed_rows(facts),
        diagnoses=[
            (name, diagnosis(result))
            for name, result in facts.evals.items()
            if result.get("diagnosed")
        ],
        provenance=tables.provenance(facts),
        figures_json=script_json(drawn),
        plotly_js=get_plotlyjs(),
        page_js="\n".join((HERE / name).read_text(encoding="utf-8") for name in SCRIPTS),
        page_css=(HERE / "page.css").read_text(encoding="utf-8"),
    )


def _explorer_parts(facts: Facts, sizes: Explorer | None) -> dict[str, Any]:
    """What the template of the slider reads."""
    if sizes is None:
        return {"explorer": None}
    return {
        "explorer": sizes,
        "explorer_json": script_json(sizes),
        "readouts": [(name, label) for name, label in READOUTS.items() if name in sizes],
        "static_sizes": static_sizes(sizes),
        "reasons": reason_tables(facts.search),
        "percent": percent,
    }


def script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in, whatever text it holds."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _plots(facts: Facts, sizes: Explorer | None) -> Iterator[Plot]:
    """The figures that the run has data for, in the order of the chain."""
    yield from _vocabulary_plots(facts, sizes)
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
        ("drift", "Speed and its price", DRIFT_TEXT, figures_run.drift_figure(rules)),
        ("position", "Acceptance by position", POSITION_TEXT, figures_run.position_figure(rules)),
        ("cycle", "Where a round's time goes", CYCLE_TEXT, figures_run.cycle_figure(rules)),
        ("heads", "How far the dropout heads agree", HEADS_TEXT, figures_run.heads_figure(rules)),
    ):
        if figure is not None:
            yield Plot(name, title, text, figure)


def _vocabulary_plots(facts: Facts, sizes: Explorer | None) -> Iterator[Plot]:
    if facts.curve is not None:
        figure = figures_sizes.coverage_figure(facts.curve, facts.search, sizes)
        yield Plot("coverage", "Coverage", COVERAGE_TEXT, figure)
    if facts.search is not None:
        title, text = utility_text(facts.search)
        yield Plot("utility", title, text, figures_sizes.utility_figure(facts.search))
    for name, title, text, drawn in (
        ("domains", "Coverage by text", DOMAINS_TEXT, figures_sizes.domains_figure(sizes)),
        ("misses", "First missing token", MISSES_TEXT, figures_sizes.misses_figure(sizes)),
    ):
        if drawn is not None:
            yield Plot(name, title, text, drawn)
    if facts.search is not None:
        figure = figures.flops_figure(facts.search)
        yield Plot("flops", "FLOPs of a draft token", FLOPS_TEXT, figure)


def utility_text(search: dict[str, Any]) -> tuple[str, str]:
    """The title, and what was searched, with which result beside the exact optimum."""
    low, high = search["plateau"]
    exact = f"the exact optimum is k = {search['exact']['k']:,}"
    if search.get("tpe"):
        exact = f"{search['trials']} TPE trials; {exact}, regret {search['regret']:.1g}"
    if search.get("objective") == "throughput":
        times = search["throughput"]["times"]["source"]
        text = (
            f"Expected tokens per second with times {times}; coverage at least {search['cmin']:g}. "
            f"{exact}. Shaded: every k from {low:,} to {high:,} is within 1 % of the optimum."
        )
        return "Expected speed", text
    return "Utility", (
        f"U(k) = {search['alpha']} C(k) + {1 - search['alpha']:.4g} R(k), coverage at least "
        f"{search['cmin']:g}. {exact}. "
        f"Shaded: every k from {low:,} to {high:,} is within 0.001 of the optimum."
    )


COVERAGE_TEXT = (
    "Share of the target's reply tokens that a draft vocabulary of size k contains. The held-out "
    "curve ranks tokens without the held-out rows: what to expect on new text."
)
DOMAINS_TEXT = "One vocabulary, chosen on all rows together, on each text alone."
MISSES_TEXT = (
    "Share of held-out conversations that meet a token without a seat among their first N reply "
    "tokens; a shorter conversation counts with what it has. The target emits such a token itself, "
    "and the round ends there."
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
    "in alternation in one process. Green keeps the target's law; red is lossy. The table of all "
    "measurements names each run's draft."
)
DRIFT_TEXT = (
    "Greedy decoding: each rule's speed-up over plain decoding in the same run, against the share "
    "of its tokens that are not the target's own first choice. Circles keep the target's output."
)
POSITION_TEXT = "Share of the rounds in which the first j drafted tokens were all accepted."
CYCLE_TEXT = "Draft forwards, the target's forward, the acceptance rule, and everything else."
HEADS_TEXT = (
    "DropMatch judges a token by several noisy copies of the target's head. Few unanimous "
    "positions mean that the noise, not the target, decides: lower --p-drop."
)
