"""Intervals and p-values against hand counts, plain loops and simulated chance."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from vtrim.evaluation.bootstrap import Floats, paired_interval, paired_p_value


def speed(tokens: Floats, seconds: Floats) -> Floats:
    return tokens / seconds


def draws(seed: int, count: int, gain: float = 1.0) -> list[tuple[float, float]]:
    random = np.random.default_rng(seed)
    return [(gain * t, s) for t, s in random.uniform(10, 30, size=(count, 2))]


def test_all_swaps_of_three_equal_gains_leave_two_as_large() -> None:
    slow, fast = [(1.0, 1.0)] * 3, [(2.0, 1.0)] * 3
    assert paired_p_value(slow, fast, speed) == 2 / 8


def test_no_difference_has_p_one() -> None:
    same = draws(0, 8)
    assert paired_p_value(same, same, speed) == 1.0
    assert paired_p_value(draws(0, 40), draws(0, 40), speed) == 1.0


def test_the_exact_p_value_is_that_of_a_plain_loop_over_all_swaps() -> None:
    a, b = draws(1, 7), draws(2, 7)

    def gap(first: list[tuple[float, float]], second: list[tuple[float, float]]) -> float:
        (x, y), (u, v) = map(sum, zip(*first, strict=True)), map(sum, zip(*second, strict=True))
        return u / v - x / y

    swapped = [
        gap([(a, b)[s][i] for i, s in enumerate(way)], [(b, a)[s][i] for i, s in enumerate(way)])
        for way in product((0, 1), repeat=7)
    ]
    as_large = sum(abs(one) >= abs(gap(a, b)) * (1 - 1e-9) for one in swapped)
    assert paired_p_value(a, b, speed) == as_large / 2**7


def test_drawn_swaps_agree_with_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = draws(3, 12), draws(4, 12, gain=1.15)
    exact = paired_p_value(a, b, speed)
    monkeypatch.setattr("vtrim.evaluation.bootstrap._EXACT_UP_TO", 0)
    drawn = paired_p_value(a, b, speed)
    assert exact is not None
    assert drawn == pytest.approx(exact, abs=5 * (exact * (1 - exact) / 9999) ** 0.5)


def test_a_gain_on_every_prompt_is_as_sure_as_the_number_of_swaps_allows() -> None:
    a = draws(5, 40)
    faster = [(2 * tokens, seconds) for tokens, seconds in a]
    assert paired_p_value(a, faster, speed) == 1 / 10_000
    assert paired_p_value(a[:10], faster[:10], speed) == 2 / 2**10


def test_chance_alone_is_called_a_difference_one_time_in_twenty() -> None:
    found = [paired_p_value(draws(2 * i, 9), draws(2 * i + 1, 9), speed) for i in range(400)]
    share = sum(p is not None and p <= 0.05 for p in found) / 400
    assert 0.05 - 4 * 0.011 < share < 0.05 + 4 * 0.011  # one sigma of 400 draws is 0.011


def test_the_interval_holds_the_truth_nineteen_times_in_twenty() -> None:
    held = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        parts = [(float(v), 1.0) for v in random.normal(3.0, 1.0, size=40)]
        low, high = paired_interval(parts, speed) or (0.0, 0.0)
        held += low <= 3.0 <= high
    assert 0.89 < held / 200 < 0.99


def test_turns_of_one_row_are_no_more_witnesses_than_the_row() -> None:
    parts = draws(6, 8)
    twice, rows = [p for p in parts for _ in range(2)], [i for i in range(8) for _ in range(2)]
    single = paired_interval(parts, speed)
    assert paired_interval(twice, speed, rows) == single
    low, high = paired_interval(twice, speed) or (0.0, 0.0)
    assert single is not None
    assert high - low < single[1] - single[0]
    assert paired_interval(twice, speed, [i // 4 for i in range(16)]) is None  # 4 rows
    others = draws(7, 8)
    twice_others = [p for p in others for _ in range(2)]
    of_rows = paired_p_value(twice, twice_others, speed, rows)
    assert of_rows == paired_p_value(parts, others, speed)


def test_what_is_not_defined_has_neither_interval_nor_p() -> None:
    nothing = [(0.0, 0.0)] * 6
    assert paired_interval(nothing, speed) is None
    assert paired_p_value(nothing, nothing, speed) is None
    assert paired_interval([], speed) is None
