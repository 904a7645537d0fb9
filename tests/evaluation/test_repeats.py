"""The median run of a prompt, and how far repeats lie apart."""

from __future__ import annotations

import pytest

from vtrim.decoding.generation import Generation
from vtrim.evaluation.noise import FixedKernel, noise
from vtrim.evaluation.repeats import by_repeat, median_run, medians, same_replies


def run(seconds: float, tokens: tuple[int, ...] = (1, 2, 3, 4, 5)) -> Generation:
    return Generation(
        tokens=tokens,
        drafted=(3, 3),
        accepted=(1, 1),
        reasons={},
        off_argmax=0,
        seconds={"prefill": 7.0, "draft": seconds / 4, "verify": 3 * seconds / 4},
    )


def test_one_slow_repeat_does_not_reach_the_result() -> None:
    slow, middle, fast = run(90.0), run(4.0), run(3.0)
    assert median_run([slow, middle, fast]) is middle
    assert median_run([middle]) is middle


def test_two_middle_repeats_share_the_median() -> None:
    found = median_run([run(2.0), run(4.0), run(1.0), run(9.0)])
    assert found.decode_seconds == pytest.approx(3.0)
    assert found.seconds["prefill"] == 7.0
    assert found.seconds["draft"] / found.decode_seconds == pytest.approx(1 / 4)


def test_the_median_is_of_the_time_per_token_where_replies_differ() -> None:
    long = run(6.0, tokens=tuple(range(13)))  # half a second a token
    assert median_run([long, run(8.0), run(1.0)]) is long


def test_a_reply_of_the_prefill_token_alone_has_no_rounds_to_time() -> None:
    one = Generation(
        tokens=(9,), drafted=(), accepted=(), reasons={}, off_argmax=0, seconds={"prefill": 1.0}
    )
    assert median_run([one, one, one, one]) == one


def test_repeats_are_told_one_by_one() -> None:
    runs = [
        {"plain": [run(8.0)], "chosen": [run(2.0)]},
        {"plain": [run(4.0)], "chosen": [run(4.0)]},
    ]
    rows = by_repeat(runs, "plain", {"exact": "exact", "chosen": "chosen"})
    assert [row["plain_tokens_per_second"] for row in rows] == [0.5, 1.0]
    assert [row["chosen"]["speedup"] for row in rows] == [4.0, 1.0]
    assert all("exact" not in row for row in rows)
    assert medians(runs)["chosen"][0].decode_seconds == 3.0


def test_replies_that_change_from_repeat_to_repeat_are_told() -> None:
    runs = [
        {"chosen": [run(1.0), run(1.0)]},
        {"chosen": [run(1.0), run(1.0, tokens=(1, 2, 9))]},
    ]
    assert same_replies(runs, "chosen") == 0.5
    assert same_replies(runs[:1], "chosen") is None


def test_noise_is_the_spread_of_the_same_work() -> None:
    found = noise([10.0, 12.0, 11.0], [4.0, 1.0, 2.0, 3.0, 5.0])
    assert found["plain_spread"] == pytest.approx(2 / 11)
    assert found["kernel_seconds"] == 3.0
    assert found["kernel_spread"] == pytest.approx((4.0 - 2.0) / 3.0)
    assert found["kernel_drift"] == pytest.approx(5.0 / 4.0 - 1)
    assert noise([10.0, None], [1.0]) == {"plain_spread": None, "kernel_looks": 1}


def test_the_fixed_kernel_notes_a_time_at_each_look() -> None:
    kernel = FixedKernel("cpu")
    for _ in range(3):
        kernel.look()
    assert len(kernel.seconds) == 3
    assert min(kernel.seconds) > 0
