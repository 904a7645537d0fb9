"""Tables of one run's report: rules, positions, time, texts, reasons, training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vtrim.evaluation.diagnosis import diagnosis
from vtrim.evaluation.report.explorer import Explorer, static_sizes
from vtrim.evaluation.report.figures_run import PHASES, of_kind
from vtrim.evaluation.report.parts import Grid
from vtrim.evaluation.report.reasons import reason_tables
from vtrim.evaluation.report.rules import UNKNOWN, Measured, decimal, percent
from vtrim.evaluation.report.tables import SPEED_COLUMNS

SPEED_TEXT = (
    "Tokens/round is the acceptance length: tokens emitted per forward of the target, prefill left "
    "out. Speed-ups are over plain decoding in the same run. Intervals: 95 %, prompts drawn anew. "
    "In bf16, arg-max ties change the text of exact decoding too. Off the arg-max: emitted tokens "
    "that are not the target's own first choice. Log p: of the emitted tokens under the target, "
    "mean, less that of plain decoding [nats]."
)


_CONDITIONS = ("draft", "its k", "T", "L", "dtype", "batch", "prompts")
"""Columns that are said once where they are the same in all rows."""


def speed_grid(rows: list[list[str]]) -> Grid:
    """All rules of all results; rows as SPEED_COLUMNS."""
    shared = {}
    for name in _CONDITIONS:
        values = {row[SPEED_COLUMNS.index(name)] for row in rows} - {""}
        if len(values) == 1:
            shared[name] = values.pop()
    places = [i for i, name in enumerate(SPEED_COLUMNS) if name not in shared]
    known = (f"{name} {value}" for name, value in shared.items() if value != UNKNOWN)
    same = "; ".join(known)
    return Grid(
        name="measurements",
        title="All measurements",
        text=f"{SPEED_TEXT} In all rows: {same}." if same else SPEED_TEXT,
        columns=tuple(SPEED_COLUMNS[i] for i in places),
        rows=[[row[i] for i in places] for row in rows],
        names=2,
    )


def position_grid(rules: Sequence[Measured]) -> Grid:
    """Share of the rounds in which the first j drafted tokens were all accepted."""
    shares = {rule.text: rule.numbers.get("acceptance_by_position") or [] for rule in rules}
    longest = max(map(len, shares.values()), default=0)
    return Grid(
        name="positions",
        title="Acceptance by position",
        text="Share of the rounds that drafted so far in which all tokens up to here passed.",
        columns=("rule", *(f"token {j}" for j in range(1, longest + 1))),
        rows=[
            [name, *map(percent, passed), *[""] * (longest - len(passed))]
            for name, passed in shares.items()
            if passed
        ],
        drawn=True,
    )


def cycle_grid(rules: Sequence[Measured]) -> Grid:
    """Where the time of a round goes."""
    return Grid(
        name="times",
        title="Where a round's time goes",
        text="Shares of a round's time.",
        columns=("rule", *PHASES),
        rows=[
            [rule.text, *(percent(rule.numbers["shares"].get(phase)) for phase in PHASES)]
            for rule in rules
            if rule.numbers.get("shares")
        ],
        drawn=True,
    )


def diagnosis_grids(evals: Mapping[str, Mapping[str, Any]]) -> list[Grid]:
    """What DropMatch saw in each result that was asked to say."""
    return [
        Grid(
            name=f"diagnosis-{name}",
            title=f"What DropMatch saw: {name}",
            text="Beside the tables of its paper (arXiv:2603.03333), measured on a model of 70B "
            "with 5 heads and p 0.3; --diagnose measures it.",
            columns=("table", "what", "here", "paper"),
            rows=[[one.table, one.what, one.here, one.paper] for one in diagnosis(result)],
            names=4,
            wraps=True,
        )
        for name, result in evals.items()
        if result.get("diagnosed")
    ]


def texts_grid(sizes: Explorer | None) -> Grid | None:
    """Coverage of each text at a few sizes; the page's slider shows every size."""
    if sizes is None:
        return None
    shown = static_sizes(sizes)
    return Grid(
        name="texts",
        title="Coverage by text",
        text="Share of each text's reply tokens that the vocabulary holds.",
        columns=("replies", "tokens", *(f"k {sizes['k'][i]:,}" for i in shown)),
        rows=[
            [one["name"], f"{one['tokens']:,}", *(percent(one["coverage"][i]) for i in shown)]
            for one in sizes["domains"]
        ],
        drawn=True,
    )


def reason_grids(search: Mapping[str, Any] | None) -> list[Grid]:
    """The tables that defend the chosen size; the page shows them beside its slider."""
    return [
        Grid(
            name=f"reasons-{number}",
            title=table.title,
            text=table.text,
            columns=table.columns,
            rows=[[cells[0], f"{k:,}", *cells[1:]] for k, cells in table.rows],
            drawn=True,
        )
        for number, table in enumerate(reason_tables(search), 1)
    ]


def training_grid(metrics: Sequence[dict[str, Any]]) -> Grid:
    """The held-out checks of training."""
    return Grid(
        name="checks",
        title="Held-out checks",
        text="Joint prefix: 1 + expected number of drafted tokens right in a row.",
        columns=("step", "loss", "joint prefix", "outside the vocabulary"),
        rows=[
            [
                str(check.get("step", UNKNOWN)),
                decimal(check.get("loss"), 3),
                decimal(check.get("joint_prefix"), 3),
                percent(check.get("oov_share")),
            ]
            for check in of_kind(metrics, "heldout")
        ],
        drawn=True,
    )
