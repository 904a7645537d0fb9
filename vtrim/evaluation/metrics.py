"""Numbers of a set of generations, each with its definition; no clock and no model here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vtrim.decoding.generation import Generation
from vtrim.evaluation.bootstrap import Groups, interval_between, paired_interval

PHASES = ("draft", "verify", "accept", "other")


@dataclass(frozen=True, kw_only=True)
class RuleMetrics:
    """What one rule did on all prompts; None where it had nothing to count.

    tokens: all that were generated; emitted: those of the rounds (prefill tokens left out);
    drafted: depth of what was drafted, nodes: tokens drafted, all branches of a tree counted;
    acceptance_length: emitted per round, i.e. per target forward [tokens/round];
    acceptance_by_position[j]: share of the rounds that drafted more than j tokens in which the
    first j + 1 were all accepted; tokens_per_second: emitted per second of the rounds, prefill
    left out, of a batch per second of its own time; shares: of that time, by phase;
    off_argmax_share: share of the emitted tokens that differ from the target's clean arg-max after
    the same prefix; accept_reasons: number of accepted draft tokens by reason.
    """

    tokens: int
    emitted: int
    rounds: int
    drafted: int
    nodes: int
    accepted: int
    seconds: float
    prefill_seconds: float
    acceptance_length: float | None
    acceptance_by_position: list[float]
    tokens_per_second: float | None
    shares: dict[str, float]
    off_argmax_share: float | None
    accept_reasons: dict[str, int]

    @classmethod
    def of(cls, generations: Sequence[Generation]) -> RuleMetrics:
        """Sums over all generations, then ratios."""
        emitted = sum(g.emitted for g in generations)
        rounds = sum(g.rounds for g in generations)
        seconds = {phase: sum(g.seconds.get(phase, 0.0) for g in generations) for phase in PHASES}
        total = sum(seconds.values())
        reasons: Counter[str] = Counter()
        for generation in generations:
            reasons.update(generation.reasons)
        return cls(
            tokens=sum(len(g.tokens) for g in generations),
            emitted=emitted,
            rounds=rounds,
            drafted=sum(sum(g.drafted) for g in generations),
            nodes=sum(sum(g.nodes) for g in generations),
            accepted=sum(sum(g.accepted) for g in generations),
            seconds=total,
            prefill_seconds=sum(g.seconds.get("prefill", 0.0) for g in generations),
            acceptance_length=emitted / rounds if rounds else None,
            acceptance_by_position=acceptance_by_position(generations),
            tokens_per_second=emitted / total if emitted else None,
            shares={phase: value / total if rounds else 0.0 for phase, value in seconds.items()},
            off_argmax_share=sum(g.off_argmax for g in generations) / emitted if emitted else None,
            accept_reasons=dict(sorted(reasons.items())),
        )


def acceptance_by_position(generations: Sequence[Generation]) -> list[float]:
    """[L] share of the rounds that drafted more than j tokens in which the first j+1 all passed."""
    tried, passed = Counter[int](), Counter[int]()
    for generation in generations:
        for drafted, accepted in zip(generation.drafted, generation.accepted, strict=True):
            tried.update(range(drafted))
            passed.update(range(accepted))
    return [passed[j] / tried[j] for j in range(len(tried))]


def ratio(a: float | None, b: float | None) -> float | None:
    """The quotient a / b; None where one is not known or b is 0."""
    return a / b if a is not None and b else None


def speedups(rule: Sequence[Generation], plain: Sequence[Generation]) -> list[float]:
    """Speed-up over plain decoding prompt by prompt, where both had rounds."""
    return [
        (a.emitted / a.decode_seconds) / (b.emitted / b.decode_seconds)
        for a, b in zip(rule, plain, strict=True)
        if a.emitted and b.emitted
    ]


def median_of(values: Sequence[float]) -> float | None:
    """The median; None of nothing."""
    return float(np.median(values)) if values else None


def speedup_interval(
    rule: Sequence[Generation], plain: Sequence[Generation], groups: Groups = None
) -> tuple[float, float] | None:
    """95 % bootstrap interval of the speed-up over plain decoding; None below 5 prompts."""
    its, base = ([(g.emitted, g.decode_seconds) for g in side] for side in (rule, plain))
    return interval_between(base, its, np.divide, np.divide, groups)


def rate_intervals(generations: Sequence[Generation], groups: Groups = None) -> dict[str, Any]:
    """Seconds per token, and the 95 % bootstrap intervals of a rule's own rates.

    seconds_per_token: mean over prompts of the rounds' time per emitted token [s/token], each
    prompt counting the same, where tokens_per_second weighs prompts by their time.
    """
    paces = [(g.decode_seconds / g.emitted, 1.0) for g in generations if g.emitted]
    of_paces = None if groups is None else [
        group for group, g in zip(groups, generations, strict=True) if g.emitted
    ]  # fmt: skip
    lengths = [(g.emitted, g.rounds) for g in generations]
    speeds = [(g.emitted, g.decode_seconds) for g in generations]
    return {
        "acceptance_length_interval": paired_interval(lengths, np.divide, groups),
        "tokens_per_second_interval": paired_interval(speeds, np.divide, groups),
        "seconds_per_token": float(np.mean([pace for pace, _ in paces])) if paces else None,
        "seconds_per_token_interval": paired_interval(paces, np.divide, of_paces),
    }


def identical_share(
    rule: Sequence[Generation], plain: Sequence[Generation], temperature: float
) -> float | None:
    """Share of prompts whose reply is plain decoding's, token for token.

    None above temperature 0: both draw their replies, so even the same law gives other texts.
    """
    if temperature > 0:
        return None
    same = sum(a.tokens == b.tokens for a, b in zip(rule, plain, strict=True))
    return same / len(rule)


def public(metrics: RuleMetrics) -> dict[str, Any]:
    """The fields that a result shows for a rule."""
    return {
        "acceptance_length": metrics.acceptance_length,
        "acceptance_by_position": metrics.acceptance_by_position,
        "tokens_per_second": metrics.tokens_per_second,
        "shares": metrics.shares,
        "off_argmax_share": metrics.off_argmax_share,
        "accept_reasons": metrics.accept_reasons,
        "tokens": metrics.tokens,
        "rounds": metrics.rounds,
        "drafted": metrics.drafted,
        "nodes": metrics.nodes,
        "accepted": metrics.accepted,
        "seconds": metrics.seconds,
        "prefill_seconds": metrics.prefill_seconds,
    }
