"""The sections of one run's report: what was measured first, then what it rests on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vtrim.evaluation.report import (
    by_task,
    conditions,
    cost,
    figures,
    figures_run,
    figures_sizes,
    grids,
    rejected,
    tables,
)
from vtrim.evaluation.report.explorer import Explorer
from vtrim.evaluation.report.facts import Facts
from vtrim.evaluation.report.figures import Figure
from vtrim.evaluation.report.parts import Grid, Plot, Section
from vtrim.evaluation.report.rules import Measured, measured_rules
from vtrim.evaluation.report.sweeps import sweeps_grid


def sections(facts: Facts, sizes: Explorer | None, folder: Path) -> list[Section]:
    """All that the run has something for. folder: where the report goes, for links from it."""
    rules, evals, metrics = measured_rules(facts.evals), facts.evals, facts.metrics
    found = [
        _speed(facts, rules),
        Section(name="acceptance", title="Acceptance", plots=plots_of(
            ("position", "Acceptance by position", POSITION_TEXT,
             figures_run.position_figure(rules)),
            ("causes", "Why drafted tokens were rejected", rejected.CAUSES_TEXT,
             rejected.causes_figure(rules)),
            ("cycle", "Where a round's time goes", CYCLE_TEXT, figures_run.cycle_figure(rules)),
            ("heads", "How far the dropout heads agree", HEADS_TEXT,
             figures_run.heads_figure(rules)),
        ), grids=kept(
            grids.position_grid(rules), rejected.causes_grid(rules), grids.cycle_grid(rules),
            rejected.covered_grid(evals, facts.token_texts), *grids.diagnosis_grids(evals),
        )),
        Section(name="tasks", title="Tasks", plots=plots_of(
            ("tasks", "Length by task", by_task.TASKS_TEXT, by_task.tasks_figure(evals)),
            ("scores", "Speed and task scores", by_task.SCORES_TEXT, by_task.scores_figure(evals)),
        ), grids=kept(by_task.tasks_grid(evals), by_task.groups_grid(evals))),
        _vocabulary(facts, sizes),
        _costs(facts),
        Section(name="training", title="Training", plots=plots_of(
            ("loss", "Training loss", LOSS_TEXT, figures_run.loss_figure(metrics)),
            ("accuracy", "Accuracy by step", ACCURACY_TEXT, figures_run.accuracy_figure(metrics)),
            ("prefix", "Held-out joint prefix", PREFIX_TEXT, figures_run.prefix_figure(metrics)),
        ), grids=kept(grids.training_grid(metrics))),
        Section(name="sweeps", title="Sweeps", grids=kept(sweeps_grid(facts.sweeps, folder))),
    ]  # fmt: skip
    return [section for section in found if not section.is_empty]


def plots_of(*drawn: tuple[str, str, str, Figure | None]) -> list[Plot]:
    """(name, title, text, figure) as plots, without those that have no figure."""
    return [
        Plot(name, title, text, figure) for name, title, text, figure in drawn if figure is not None
    ]


def kept(*found: Grid | None) -> list[Grid]:
    """The tables that there are, without their empty columns."""
    return [grid.without_empty_columns() for grid in found if grid is not None and grid.rows]


def _speed(facts: Facts, rules: list[Measured]) -> Section:
    bars = figures_run.speed_figure(rules, tables.plain_speeds(facts))
    return Section(
        name="speed",
        title="Speed and quality",
        lines=conditions.noise_lines(facts.evals),
        plots=plots_of(
            ("speed", "Speed", SPEED_TEXT, bars),
            ("drift", "Speed and its price", DRIFT_TEXT, figures_run.drift_figure(rules)),
        ),
        grids=kept(
            grids.speed_grid(tables.speed_rows(facts)),
            conditions.rates_grid(rules),
            conditions.said_grid(facts.evals),
            conditions.engines_grid(facts.evals),
        ),
    )


def _vocabulary(facts: Facts, sizes: Explorer | None) -> Section:
    """Coverage and utility over size; the slider of the page stands here too."""
    search, drawn = facts.search, list[tuple[str, str, str, Figure | None]]()
    if facts.curve is not None:
        figure = figures_sizes.coverage_figure(facts.curve, search, sizes)
        drawn.append(("coverage", "Coverage", COVERAGE_TEXT, figure))
    if search is not None:
        title, text = utility_text(search)
        drawn.append(("utility", title, text, figures_sizes.utility_figure(search)))
    drawn += [
        ("domains", "Coverage by text", DOMAINS_TEXT, figures_sizes.domains_figure(sizes)),
        ("misses", "First missing token", MISSES_TEXT, figures_sizes.misses_figure(sizes)),
    ]
    return Section(
        name="vocabulary",
        title="Vocabulary",
        plots=plots_of(*drawn),
        grids=kept(grids.texts_grid(sizes), *grids.reason_grids(search)),
    )


def _costs(facts: Facts) -> Section:
    search, times = facts.search, facts.step_times
    flops = None if search is None else figures.flops_figure(search)
    return Section(
        name="cost",
        title="Cost model against measurement",
        lines=conditions.time_notes(facts.evals),
        plots=plots_of(
            ("flops", "FLOPs of a draft token", FLOPS_TEXT, flops),
            ("steps", "FLOPs saved, time saved", cost.COST_TEXT, cost.cost_figure(times)),
        ),
        grids=kept(conditions.expected_grid(facts.evals), cost.cost_grid(times)),
    )


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
