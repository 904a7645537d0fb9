"""Why drafted tokens were rejected, and what of the replies the draft could write at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vtrim.evaluation.report.explorer import quoted
from vtrim.evaluation.report.figures import BLUE, GREY, RED, Figure, stacked
from vtrim.evaluation.report.parts import Grid
from vtrim.evaluation.report.rules import Measured, percent

CAUSES_TEXT = (
    "Rounds that ended in a rejection, by the first rejected token: the target's own token in its "
    "place is not in the draft vocabulary, which is the price of trimming; it is, but was not "
    "drafted; or the target's likeliest token was drafted and a draw, or the rule's noise, "
    "rejected it."
)
CAUSES = {
    "out_of_vocabulary": ("out of the vocabulary", RED),
    "wrong_token": ("wrong token", BLUE),
    "sampling": ("sampling", GREY),
}
MOST_MISSING = 8  # tokens named in a cell


def causes_figure(rules: Sequence[Measured]) -> Figure | None:
    """Shares of the rejected rounds by cause."""
    known = [rule for rule in rules if rule.numbers.get("rejected_rounds")]
    if not known:
        return None
    parts = (
        (name, colour, [_share(rule, cause) for rule in known])
        for cause, (name, colour) in CAUSES.items()
    )
    return stacked([rule.label for rule in known], parts, "share of the rejected rounds")


def causes_grid(rules: Sequence[Measured]) -> Grid:
    """The same with the counts."""
    return Grid(
        name="causes",
        title="Why drafted tokens were rejected",
        text="By the first rejected token of each round.",
        columns=("rule", "rounds", "rejected", *(name for name, _ in CAUSES.values())),
        rows=[
            [
                rule.text,
                f"{rule.numbers.get('rounds', 0):,}",
                f"{rule.numbers['rejected_rounds']:,}",
                *(percent(_share(rule, cause)) for cause in CAUSES),
            ]
            for rule in rules
            if rule.numbers.get("rejected_rounds")
        ],
        drawn=True,
    )


def covered_grid(evals: Mapping[str, Mapping[str, Any]], texts: Mapping[str, str]) -> Grid:
    """How much of each result's replies the draft vocabulary holds, and what it lacks."""
    rows = []
    for name, result in evals.items():
        plain = (result.get("plain") or {}).get("generated_coverage")
        if plain is not None:
            gone = (result.get("missing_tokens") or ())[:MOST_MISSING]
            rows.append(
                [
                    name,
                    ", ".join(_missing(token, texts) for token in gone),
                    percent(plain, 2),
                    percent(result.get("generated_coverage"), 2),
                ]
            )
    return Grid(
        name="covered",
        title="Replies and the draft vocabulary",
        text="Share of the replies' tokens that the draft can write, and which others plain "
        "decoding wrote most often.",
        columns=("run", "missing tokens and how often", "plain replies", "the rule's"),
        rows=rows,
        names=2,
        wraps=True,
    )


def _share(rule: Measured, cause: str) -> float:
    counted = (rule.numbers.get("rejections") or {}).get(cause, 0)
    return float(counted / rule.numbers["rejected_rounds"])


def _missing(token: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    text = texts.get(str(token["id"]))
    return f"{token['id'] if text is None else quoted(text)} {token['count']:,}"
