"""Several runs side by side: what each came to, whether it can be compared, what differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vtrim.errors import OptionError
from vtrim.evaluation.report import figures_run, figures_versus, grids, tables
from vtrim.evaluation.report.document import Document, numbers, target_name
from vtrim.evaluation.report.facts import Facts
from vtrim.evaluation.report.parts import Section
from vtrim.evaluation.report.rules import Measured
from vtrim.evaluation.report.sections import (
    COVERAGE_TEXT,
    DRIFT_TEXT,
    POSITION_TEXT,
    PREFIX_TEXT,
    SPEED_TEXT,
    kept,
    plots_of,
)
from vtrim.evaluation.report.tables import headline_rules
from vtrim.evaluation.report.versus_grids import (
    compared_grid,
    crossed_grid,
    differing_grid,
    mismatches,
    side_by_side,
)

LOSS_TEXT = "On held-out rows. Only losses over the same vocabulary and rows can be compared."
UTILITY_TEXT = "Each run's utility over size, with its own alpha and its own text."


def of_runs(facts: Sequence[Facts]) -> Document:
    """The report of several runs.

    Raises:
        OptionError: a folder is named twice.
    """
    named = dict(zip(labels(facts), facts, strict=True))
    notes = [f"{label}: {note}" for label, one in named.items() for note in one.notes]
    targets = list(dict.fromkeys(target_name(one) for one in facts))
    return Document(
        title=" and ".join(targets) if len(facts) < 3 else f"{len(facts)} runs side by side",
        folders=[str(one.root) for one in facts],
        notes=[*mismatches(named), *notes],
        missing=[
            (f"{label}: {step}", f"{command} --run {one.root}")
            for label, one in named.items()
            for step, command in one.missing
        ],
        sections=_sections(named),
        evals=[f"{label}/{name}" for label, one in named.items() for name in one.evals],
        data={"reports": {label: numbers(one) for label, one in named.items()}},
    )


def labels(facts: Sequence[Facts]) -> list[str]:
    """A short name for each run: its folder's, or the whole path where two have the same.

    Raises:
        OptionError: a folder is named twice.
    """
    places = [one.root.resolve() for one in facts]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise OptionError(f"{facts[number].root}: named twice; name different run folders.")
    names = [place.name for place in places]
    return names if len(set(names)) == len(names) else [str(one.root) for one in facts]


def main_rules(named: dict[str, Facts]) -> list[Measured]:
    """The rules that stand for each run, under the run's label."""
    rules = ((label, rule) for label, facts in named.items() for rule in headline_rules(facts))
    return [replace(rule, run=label) for label, rule in rules if rule is not None]


def _sections(named: dict[str, Facts]) -> list[Section]:
    rules = main_rules(named)
    found = [
        Section(name="runs", title="Side by side", grids=kept(side_by_side(named))),
        Section(
            name="speed",
            title="Speed and quality",
            plots=plots_of(
                ("speed", "Speed", SPEED_TEXT, figures_versus.speed_figure(named)),
                ("drift", "Speed and its price", DRIFT_TEXT, figures_run.drift_figure(rules)),
                ("position", "Acceptance by position", POSITION_TEXT,
                 figures_run.position_figure(rules)),
            ),
            grids=kept(
                compared_grid(named),
                grids.speed_grid(_speed_rows(named)),
                grids.position_grid(rules),
            ),
        ),
        Section(
            name="vocabulary",
            title="Vocabulary",
            plots=plots_of(
                ("coverage", "Coverage", COVERAGE_TEXT, figures_versus.coverage_figure(named)),
                ("utility", "Utility", UTILITY_TEXT, figures_versus.utility_figure(named)),
            ),
            grids=kept(crossed_grid(named)),
        ),
        Section(
            name="training",
            title="Training",
            plots=plots_of(
                ("loss", "Held-out loss", LOSS_TEXT,
                 figures_versus.heldout_figure(named, "loss", "held-out loss")),
                ("prefix", "Held-out joint prefix", PREFIX_TEXT,
                 figures_versus.heldout_figure(named, "joint_prefix", "joint prefix [tokens]")),
            ),
        ),
        Section(name="settings", title="What differs", grids=kept(differing_grid(named))),
    ]  # fmt: skip
    return [section for section in found if not section.is_empty]


def _speed_rows(named: dict[str, Facts]) -> list[list[str]]:
    return [
        [f"{label}: {name}", *cells]
        for label, facts in named.items()
        for name, *cells in tables.speed_rows(facts)
    ]
