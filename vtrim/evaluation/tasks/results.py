"""What each task says of the rules that decoded it: speed, and scores beside plain decoding's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vtrim.decoding.generation import Generation
from vtrim.evaluation.bootstrap import MIN_PROMPTS, Groups, paired_interval
from vtrim.evaluation.measure import CHOSEN, PLAIN
from vtrim.evaluation.metrics import RuleMetrics, rate_intervals, ratio, speedup_interval
from vtrim.evaluation.prompt_rows import prompt_fingerprint
from vtrim.evaluation.tasks.asking import TaskPrompt
from vtrim.evaluation.tasks.task import Score, Task

Texts = Callable[[Any], str]
"""The text of a generation."""
_RESAMPLES = 1000

Generations = Mapping[str, Sequence[Generation]]
"""Replies by rule, in the order of the prompts; an engine may have no plain ones."""


def task_results(
    prompts: Sequence[TaskPrompt], generations: Generations, text: Texts
) -> dict[str, dict[str, Any]]:
    """The numbers of each task, by its name.

    A question's turns are prompts of their own; the reply to the last one is what is scored.
    """
    names = list(dict.fromkeys(prompt.task.name for prompt in prompts))
    return {name: _one(*_part(prompts, generations, name), text) for name in names}


def _part(
    prompts: Sequence[TaskPrompt], generations: Generations, name: str
) -> tuple[list[TaskPrompt], dict[str, list[Generation]]]:
    """The prompts of one task, and the replies to them."""
    own = [index for index, prompt in enumerate(prompts) if prompt.task.name == name]
    replies = {rule: [made[index] for index in own] for rule, made in generations.items()}
    return [prompts[index] for index in own], replies


def _one(prompts: list[TaskPrompt], generations: Generations, text: Texts) -> dict[str, Any]:
    task = prompts[0].task
    scores = {
        rule: [
            prompt.score(prompt.reply_text(text(reply)))
            for prompt, reply in zip(prompts, replies, strict=True)
        ]
        for rule, replies in generations.items()
    }
    plain = generations.get(PLAIN)
    asked = [prompt.question.origin for prompt in prompts]  # its turns are drawn together
    return {
        "questions": len({prompt.question.origin for prompt in prompts}),
        "prompts": len(prompts),
        "metric": task.metric,
        "licence": task.licence,
        "plain_tokens_per_second": RuleMetrics.of(plain or ()).tokens_per_second,
        **{
            rule: speed(made, plain, asked)
            for rule, made in generations.items()
            if rule not in (PLAIN, CHOSEN)
        },
        **speed(generations[CHOSEN], plain, asked),
        "groups": _groups(prompts, generations, scores),
        "scores": _scores(task, scores) if task.metric is not None else None,
        "scored": _scored(prompts, scores),
    }


def speed(
    rule: Sequence[Generation], plain: Sequence[Generation] | None, groups: Groups = None
) -> dict[str, Any]:
    """Acceptance length and tokens/s of a rule, and its speed-up, with 95 % intervals."""
    return {
        "tokens": sum(one.emitted + 1 for one in rule),
        **_rates(rule, plain),
        **rate_intervals(rule, groups),
        "speedup_interval": None if plain is None else speedup_interval(rule, plain, groups),
    }


def _rates(
    rule: Sequence[Generation], plain: Sequence[Generation] | None
) -> dict[str, float | None]:
    metrics, base = RuleMetrics.of(rule), RuleMetrics.of(plain or ())
    return {
        "acceptance_length": metrics.acceptance_length,
        "tokens_per_second": metrics.tokens_per_second,
        "speedup": ratio(metrics.tokens_per_second, base.tokens_per_second),
    }


def _groups(
    prompts: Sequence[TaskPrompt],
    generations: Generations,
    scores: Mapping[str, list[Score | None]],
) -> dict[str, dict[str, Any]]:
    """The same in brief for each part of the data set; nothing where it has no parts."""
    names = sorted({prompt.question.group for prompt in prompts})
    found = {}
    for name in names if names != [""] else []:
        own = [i for i, prompt in enumerate(prompts) if prompt.question.group == name]
        made = {rule: [of_rule[i] for i in own] for rule, of_rule in generations.items()}
        total = prompts[own[0]].task.total
        found[name] = {
            "prompts": len(own),
            **_rates(made[CHOSEN], made.get(PLAIN)),
            **{
                key: total(_known([scores[rule][i] for i in own])) if rule in scores else None
                for key, rule in (("score", CHOSEN), ("plain_score", PLAIN))
            },
        }
    return found


def _scored(
    prompts: Sequence[TaskPrompt], scores: Mapping[str, list[Score | None]]
) -> list[dict[str, Any]]:
    """Each scored reply's value by rule, with its prompt as other rows name it."""
    return [
        {
            "prompt": prompt_fingerprint(prompt.ids),
            **{rule: score.value for rule, score in zip(scores, values, strict=True) if score},
        }
        for prompt, *values in zip(prompts, *scores.values(), strict=True)
        if any(score is not None for score in values)
    ]


def _known(scores: Sequence[Score | None]) -> list[Score]:
    return [score for score in scores if score is not None]


def _scores(task: Task, scores: Mapping[str, list[Score | None]]) -> dict[str, Any]:
    """A task's metric by rule, its parts, and how far the chosen rule is from plain decoding."""
    known = {rule: _known(of_rule) for rule, of_rule in scores.items()}
    totals = {rule: task.total(of_rule) for rule, of_rule in known.items()}
    return {
        "scored": len(known[CHOSEN]),
        **totals,
        "parts": {rule: _parts(of_rule) for rule, of_rule in known.items()},
        "counts": {rule: _counts(of_rule) for rule, of_rule in known.items()},
        "change": _difference(totals[CHOSEN], totals.get(PLAIN)),
        "change_interval": _interval(task, known[CHOSEN], known[PLAIN]) if PLAIN in known else None,
    }


def _parts(scores: Sequence[Score]) -> dict[str, float]:
    """Means of the other values that the scorer gives."""
    names = sorted({name for score in scores for name in score.parts})
    return {
        name: float(np.mean([score.parts[name] for score in scores if name in score.parts]))
        for name in names
    }


def _counts(scores: Sequence[Score]) -> dict[str, float]:
    """Sums of what is counted over replies (rules kept, entities found)."""
    names = sorted({name for score in scores for name in score.counts})
    return {name: sum(score.counts.get(name, 0.0) for score in scores) for name in names}


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _interval(task: Task, chosen: list[Score], plain: list[Score]) -> tuple[float, float] | None:
    """95 % bootstrap interval of the difference of the metric: replies drawn anew, in pairs."""
    if len(chosen) < MIN_PROMPTS:
        return None
    if not any(score.counts for score in (*chosen, *plain)):  # a mean
        pairs = [(a.value, b.value, 1.0) for a, b in zip(chosen, plain, strict=True)]
        return paired_interval(pairs, lambda ours, theirs, number: (ours - theirs) / number)
    draw = np.random.default_rng(0)
    found = []
    for _ in range(_RESAMPLES):
        picked = draw.integers(len(chosen), size=len(chosen))
        ours, theirs = (task.total([scores[i] for i in picked]) for scores in (chosen, plain))
        found.append(_difference(ours, theirs))
    low, high = np.quantile([value for value in found if value is not None], (0.025, 0.975))
    return float(low), float(high)
