"""Literal generations with numbers that can be checked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from vtrim.decoding.generation import Generation
from vtrim.evaluation.metrics import (
    RuleMetrics,
    acceptance_by_position,
    identical_share,
    ratio,
    speedup_interval,
    speedups,
)


def generation(**changes: Any) -> Generation:
    values: dict[str, Any] = {
        "tokens": (5, 6, 7, 8, 9, 10),
        "drafted": (3, 3, 1),
        "accepted": (2, 0, 0),
        "reasons": {"argmax": 2},
        "off_argmax": 0,
        "seconds": {"prefill": 5.0, "draft": 1.0, "verify": 2.0, "accept": 0.5, "other": 0.5},
    }
    return Generation(**(values | changes))


def test_acceptance_length_leaves_the_prefill_token_out() -> None:
    metrics = RuleMetrics.of([generation()])
    assert (metrics.tokens, metrics.emitted, metrics.rounds) == (6, 5, 3)
    assert metrics.acceptance_length == 5 / 3


def test_sums_come_before_ratios() -> None:
    long = generation(tokens=tuple(range(12)), drafted=(3,) * 4, accepted=(3, 3, 1, 0))
    metrics = RuleMetrics.of([generation(), long])
    assert metrics.acceptance_length == (5 + 11) / (3 + 4)
    assert metrics.tokens_per_second == (5 + 11) / 8.0


def test_tokens_per_second_leave_the_prefill_out() -> None:
    metrics = RuleMetrics.of([generation()])
    assert metrics.seconds == 4.0
    assert metrics.prefill_seconds == 5.0
    assert metrics.tokens_per_second == 5 / 4.0
    assert metrics.shares == {"draft": 0.25, "verify": 0.5, "accept": 0.125, "other": 0.125}


def test_a_position_is_judged_by_the_rounds_that_drafted_it() -> None:
    # drafted 3 3 1: position 0 in three rounds, positions 1 and 2 in two
    assert acceptance_by_position([generation()]) == [1 / 3, 1 / 2, 0.0]


def test_a_rule_that_never_had_a_round_has_no_ratios() -> None:
    one = generation(tokens=(5,), drafted=(), accepted=(), reasons={}, seconds={"prefill": 1.0})
    metrics = RuleMetrics.of([one])
    assert metrics.acceptance_length is None
    assert metrics.tokens_per_second is None
    assert metrics.off_argmax_share is None
    assert metrics.acceptance_by_position == []
    assert set(metrics.shares.values()) == {0.0}


def test_off_argmax_is_a_share_of_the_emitted_tokens() -> None:
    assert RuleMetrics.of([generation(off_argmax=2), generation()]).off_argmax_share == 2 / 10


def test_reasons_add_up_to_the_accepted_tokens() -> None:
    both = [generation(), generation(reasons={"js": 1, "argmax": 1})]
    metrics = RuleMetrics.of(both)
    assert metrics.accept_reasons == {"argmax": 3, "js": 1}
    assert sum(metrics.accept_reasons.values()) == metrics.accepted == 4


def test_replies_are_compared_token_for_token_at_temperature_0_only() -> None:
    here, there = [generation(), generation()], [generation(), generation(tokens=(5, 6))]
    assert identical_share(here, there, 0.0) == 0.5
    assert identical_share(here, there, 1.0) is None


def test_speedups_compare_tokens_per_second_in_pairs() -> None:
    slow = generation(seconds={"prefill": 0.0, "verify": 8.0})
    assert speedups([generation()], [slow]) == [2.0]
    assert speedup_interval([generation()] * 4, [slow] * 4) is None
    assert speedup_interval([generation()] * 5, [slow] * 5) == (2.0, 2.0)


def test_the_interval_covers_the_spread_of_the_prompts() -> None:
    slow = [generation(seconds={"verify": s}) for s in (4.0, 6.0, 8.0, 10.0, 12.0, 8.0)]
    interval = speedup_interval([generation()] * 6, slow)
    assert interval is not None
    assert 1.0 < interval[0] < 2.0 < interval[1] < 3.0
    assert interval == speedup_interval([generation()] * 6, slow)


@pytest.mark.parametrize(("a", "b"), [(None, 1.0), (1.0, None), (1.0, 0.0)])
def test_a_ratio_of_unknowns_is_unknown(a: float | None, b: float | None) -> None:
    assert ratio(a, b) is None
