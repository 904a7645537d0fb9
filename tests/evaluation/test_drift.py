"""Literal generations with a price that can be checked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from vtrim.decoding.generation import Generation
from vtrim.evaluation.drift import (
    common_prefix,
    drift,
    log_prob_change,
    log_prob_interval,
    mean_log_prob,
    prefix_share,
    prefix_tokens,
)


def generation(tokens: tuple[int, ...], log_prob: float = 0.0, **changes: Any) -> Generation:
    values: dict[str, Any] = {
        "tokens": tokens,
        "drafted": (3,),
        "accepted": (3,),
        "reasons": {},
        "off_argmax": 0,
        "seconds": {"prefill": 1.0, "verify": 1.0},
        "log_prob": log_prob,
    }
    return Generation(**(values | changes))


def test_the_mean_log_p_counts_every_token_of_the_rounds_once() -> None:
    # 4 and 2 tokens, the prefill tokens of which no round gave
    two = [generation((5, 6, 7, 8), -1.5), generation((5, 6), -0.5)]
    assert mean_log_prob(two) == -2.0 / 4
    assert mean_log_prob([generation((5,))]) is None


def test_the_change_is_below_0_where_a_rule_s_tokens_are_less_likely() -> None:
    rule, plain = [generation((5, 6, 7), -3.0)], [generation((5, 6, 7, 8, 9), -2.0)]
    assert log_prob_change(rule, plain) == -1.5 + 0.5
    assert log_prob_change(rule, [generation((5,))]) is None


def test_the_interval_needs_5_prompts_and_holds_the_change() -> None:
    plain = [generation((5, 6, 7), -0.2 * i) for i in range(6)]
    rule = [generation((5, 6, 7), -0.2 * i - 1.0 - 0.1 * (i % 2)) for i in range(6)]
    assert log_prob_interval(rule[:4], plain[:4]) is None
    interval, change = log_prob_interval(rule, plain), log_prob_change(rule, plain)
    assert interval is not None
    assert change is not None
    assert -0.55 <= interval[0] <= change <= interval[1] <= -0.5
    assert interval == log_prob_interval(rule, plain)


@pytest.mark.parametrize(
    ("a", "b", "length"),
    [((1, 2, 3), (1, 2, 3), 3), ((1, 2, 3), (1, 9, 3), 1), ((1, 2), (1, 2, 3), 2), ((1,), (2,), 0)],
)
def test_the_common_prefix_ends_where_a_token_differs_or_is_missing(
    a: tuple[int, ...], b: tuple[int, ...], length: int
) -> None:
    assert common_prefix(a, b) == common_prefix(b, a) == length


def test_a_reply_that_goes_on_longer_is_not_identical() -> None:
    rule = [generation((1, 2, 3, 4)), generation((1, 2)), generation((7, 8))]
    plain = [generation((1, 2, 3, 4)), generation((1, 2, 3, 4)), generation((7, 9))]
    assert prefix_share(rule, plain, 0.0) == (1 + 2 / 4 + 1 / 2) / 3
    assert prefix_tokens(rule, plain, 0.0) == (4 + 2 + 1) / 3
    assert prefix_share(plain, plain, 0.0) == 1.0


def test_drawn_replies_are_compared_by_their_log_p_alone() -> None:
    rule, plain = [generation((1, 2), -1.0)], [generation((3, 4), -2.0)]
    assert drift(rule, plain, 0.7) == {
        "mean_log_prob": -1.0,
        "log_prob_change": 1.0,
        "log_prob_change_interval": None,
        "plain_prefix_share": None,
        "plain_prefix_tokens": None,
    }
