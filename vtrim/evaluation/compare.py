"""Two results on the same prompts: each difference with its interval, its p-value and a sentence.

Prompts are compared in pairs, so what a prompt does to both sides cancels out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vtrim.evaluation.bootstrap import (
    MIN_PROMPTS,
    Floats,
    Parts,
    Value,
    interval_between,
    paired_p_value,
)

Row = Mapping[str, Any]
_SURE = 0.05


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number of a set of prompts. columns: of their rows, summed; value: from the sums.

    verb, unit: how a sentence says it, ``A VERB 2.1 UNIT``; more is always better.
    """

    name: str
    columns: tuple[str, ...]
    value: Value
    verb: str
    unit: str
    digits: int = 2


def _speedup(tokens: Floats, seconds: Floats, plain: Floats, plain_seconds: Floats) -> Floats:
    return (tokens / seconds) / (plain / plain_seconds)


ACCEPTANCE = Metric(
    name="acceptance_length",
    columns=("emitted", "rounds"),
    value=np.divide,
    verb="emits",
    unit="tokens a round",
)
SPEED = Metric(
    name="tokens_per_second",
    columns=("emitted", "seconds"),
    value=np.divide,
    verb="decodes",
    unit="tokens/s",
    digits=1,
)
SPEEDUP = Metric(
    name="speedup",
    columns=("emitted", "seconds", "plain_emitted", "plain_seconds"),
    value=_speedup,
    verb="is",
    unit="times as fast as its own plain decoding",
)
LOG_PROB = Metric(
    name="mean_log_prob",
    columns=("log_prob", "emitted"),
    value=np.divide,
    verb="writes tokens of",
    unit="nats under the target (log p)",
    digits=3,
)
SCORE = Metric(
    name="score",
    columns=("score", "scored"),
    value=np.divide,
    verb="scores",
    unit="(mean over the prompts with an answer)",
    digits=3,
)
METRICS = (ACCEPTANCE, SPEED, SPEEDUP, LOG_PROB, SCORE)
PLAIN_SPEED = Metric(
    name="plain_tokens_per_second",
    columns=("plain_emitted", "plain_seconds"),
    value=np.divide,
    verb="decodes",
    unit="tokens/s without a draft",
    digits=1,
)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """b against a by one metric.

    difference: b less a; ratio: b over a; intervals: 95 %, paired bootstrap over prompts, None of
    fewer than 5; p_value: of a paired permutation test. sentence: all of it in words.
    """

    metric: str
    a: float
    b: float
    difference: float
    interval: tuple[float, float] | None
    ratio: float | None
    ratio_interval: tuple[float, float] | None
    p_value: float | None
    prompts: int
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """The fields as a plain mapping."""
        return asdict(self)


def compare_rows(a: Sequence[Row], b: Sequence[Row], names: tuple[str, str]) -> list[Comparison]:
    """Every metric that both sides' rows hold. a, b: rows of the same prompts, in one order."""
    return [found for metric in METRICS if (found := compare_by(metric, a, b, names))]


def compare_by(
    metric: Metric, a: Sequence[Row], b: Sequence[Row], names: tuple[str, str]
) -> Comparison | None:
    """One metric; None where the rows do not hold it or its value is not defined."""
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if _holds(metric, x) and _holds(metric, y)]
    if not pairs:
        return None
    first, second = ([_parts(metric, row) for row in side] for side in zip(*pairs, strict=True))
    values = [_value(metric, side) for side in (first, second)]
    if not np.isfinite(values).all():
        return None
    groups = [str(row.get("origin")) for row, _ in pairs]

    def interval(against: Value) -> tuple[float, float] | None:
        return interval_between(first, second, metric.value, against, groups)

    found = Comparison(
        metric=metric.name,
        a=values[0],
        b=values[1],
        difference=values[1] - values[0],
        interval=interval(np.subtract),
        ratio=values[1] / values[0] if values[0] > 0 else None,
        ratio_interval=interval(np.divide) if values[0] > 0 else None,
        p_value=paired_p_value(first, second, metric.value, groups),
        prompts=len(set(groups)),
        sentence="",
    )
    return Comparison(**{**vars(found), "sentence": sentence(found, metric, names)})


def sentence(found: Comparison, metric: Metric, names: tuple[str, str]) -> str:
    """What was found, for a person: how much, how sure, of how many prompts."""
    digits = metric.digits
    values = f"{found.b:.{digits}f} {metric.unit}, {names[0]} {found.a:.{digits}f}"
    share = "" if found.ratio is None else f", {100 * (found.ratio - 1):+.1f} %"
    sure = "" if found.interval is None else (
        f"; 95 % interval of the difference {found.interval[0]:+.{digits}f} to "
        f"{found.interval[1]:+.{digits}f}"
    )  # fmt: skip
    chance = "" if found.p_value is None else f", p = {_p(found.p_value)}"
    return (
        f"{names[1]} {metric.verb} {values} ({found.difference:+.{digits}f}{share}{sure}{chance}, "
        f"{found.prompts} prompts): {_verdict(found, names[1])}."
    )


def _verdict(found: Comparison, name: str) -> str:
    if found.difference == 0:
        return "no difference"
    if found.prompts < MIN_PROMPTS or found.p_value is None:
        return "too few prompts to tell"
    if found.p_value >= _SURE:
        return "these prompts do not tell the two apart"
    ahead = "ahead" if found.difference > 0 else "behind"
    return f"{name} is {ahead}, and chance alone seldom gives as much"


def _p(value: float) -> str:
    return "below 0.001" if value < 0.001 else f"{value:.3f}"


def _holds(metric: Metric, row: Row) -> bool:
    return all(isinstance(_cell(row, name), int | float) for name in metric.columns)


def _parts(metric: Metric, row: Row) -> tuple[float, ...]:
    return tuple(float(_cell(row, name)) for name in metric.columns)


def _cell(row: Row, name: str) -> Any:
    """A column of a row; ``scored`` counts the rows that have a score."""
    return 1.0 if name == "scored" else row.get(name)


def _value(metric: Metric, parts: Parts) -> float:
    sums = np.array(parts, dtype=np.float64).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(metric.value(*sums))
