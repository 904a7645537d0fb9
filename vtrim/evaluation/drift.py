"""The price of a lossy rule: how far its replies stray from the target's own; no model here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vtrim.decoding.generation import Generation
from vtrim.evaluation.bootstrap import Groups, interval_between


def mean_log_prob(generations: Sequence[Generation]) -> float | None:
    """Mean log p of the rounds' emitted tokens under the target [nats/token], at temperature 1.

    Each token is judged after the reply that really stands before it; None without tokens.
    """
    emitted = sum(g.emitted for g in generations)
    return sum(g.log_prob for g in generations) / emitted if emitted else None


def log_prob_change(rule: Sequence[Generation], plain: Sequence[Generation]) -> float | None:
    """Mean log p of a rule's tokens less that of plain decoding's [nats/token].

    Near 0 where the rule keeps the target's law; below it, its texts are less the target's own.
    """
    its, own = mean_log_prob(rule), mean_log_prob(plain)
    return its - own if its is not None and own is not None else None


def log_prob_interval(
    rule: Sequence[Generation], plain: Sequence[Generation], groups: Groups = None
) -> tuple[float, float] | None:
    """95 % bootstrap interval of the change in mean log p; None below 5 prompts."""
    its, own = ([(g.log_prob, g.emitted) for g in side] for side in (rule, plain))
    return interval_between(own, its, np.divide, np.subtract, groups)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of tokens before the first that differs; a reply that ends has no further token."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


def prefix_share(
    rule: Sequence[Generation], plain: Sequence[Generation], temperature: float
) -> float | None:
    """Mean over prompts of the common prefix with plain decoding's reply over the longer of both.

    1 says that all replies are identical; None above temperature 0, where both are drawn.
    """
    if temperature > 0:
        return None
    shares = [
        common_prefix(a.tokens, b.tokens) / max(len(a.tokens), len(b.tokens))
        for a, b in zip(rule, plain, strict=True)
    ]
    return float(np.mean(shares))


def prefix_tokens(
    rule: Sequence[Generation], plain: Sequence[Generation], temperature: float
) -> float | None:
    """Mean over prompts of the common prefix with plain decoding's reply [tokens]."""
    if temperature > 0:
        return None
    pairs = zip(rule, plain, strict=True)
    return float(np.mean([common_prefix(a.tokens, b.tokens) for a, b in pairs]))


def drift(
    rule: Sequence[Generation],
    plain: Sequence[Generation],
    temperature: float,
    groups: Groups = None,
) -> dict[str, Any]:
    """The fields that a result shows for a rule."""
    return {
        "mean_log_prob": mean_log_prob(rule),
        "log_prob_change": log_prob_change(rule, plain),
        "log_prob_change_interval": log_prob_interval(rule, plain, groups),
        "plain_prefix_share": prefix_share(rule, plain, temperature),
        "plain_prefix_tokens": prefix_tokens(rule, plain, temperature),
    }
