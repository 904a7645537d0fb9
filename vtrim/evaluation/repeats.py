"""The same replies measured several times: each prompt's median run, and how far runs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from vtrim.decoding.generation import Generation
from vtrim.evaluation.metrics import RuleMetrics, ratio

Runs = Sequence[Mapping[str, Sequence[Generation]]]
"""Of each repeat, the generations of each rule in the order of the prompts."""


def median_run(runs: Sequence[Generation]) -> Generation:
    """One prompt's run of median time per token, its time set to that median where two share it.

    A hiccup of the machine in one run of one prompt does not reach the result.
    """
    ranked = sorted(runs, key=_pace)
    middle = ranked[(len(ranked) - 1) // 2]
    factor = median(map(_pace, ranked)) / (_pace(middle) or 1.0)
    if factor == 1.0 or not middle.emitted:
        return middle
    timed = {
        phase: value if phase == "prefill" else factor * value
        for phase, value in middle.seconds.items()
    }
    return replace(middle, seconds=timed)


def medians(runs: Runs) -> dict[str, list[Generation]]:
    """The median run of every prompt, by rule."""
    if len(runs) == 1:
        return {name: list(generations) for name, generations in runs[0].items()}
    return {
        name: [median_run(one) for one in zip(*(run[name] for run in runs), strict=True)]
        for name in runs[0]
    }


def by_repeat(runs: Runs, plain: str, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Each repeat's speeds and lengths, in order. names: what a result calls each rule."""
    rows = []
    for run in runs:
        base = RuleMetrics.of(run[plain])
        row: dict[str, Any] = {"plain_tokens_per_second": base.tokens_per_second}
        for rule, shown in names.items():
            if rule in run:
                metrics = RuleMetrics.of(run[rule])
                row[shown] = {
                    "tokens_per_second": metrics.tokens_per_second,
                    "acceptance_length": metrics.acceptance_length,
                    "speedup": ratio(metrics.tokens_per_second, base.tokens_per_second),
                }
        rows.append(row)
    return rows


def same_replies(runs: Runs, rule: str) -> float | None:
    """Share of the prompts whose reply was the same in all repeats; None of a single one."""
    if len(runs) < 2:
        return None
    replies = list(zip(*(run[rule] for run in runs), strict=True))
    return sum(len({one.tokens for one in of}) == 1 for of in replies) / len(replies)


def _pace(generation: Generation) -> float:
    """Seconds a token of the rounds; 0 without any."""
    return generation.decode_seconds / generation.emitted if generation.emitted else 0.0
