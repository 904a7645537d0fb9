from __future__ import annotations

import statistics
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from vtrim.trimming.analysis_heldout import (
    first_miss,
    heldout_band,
    heldout_interval,
    miss_shares,
)
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.sample import HeldoutSample

Ids = npt.NDArray[np.int64]
VOCAB = 40


def coverage_with(
    rows: list[list[int]], times: list[int] | None = None, counted: Ids | None = None
) -> Coverage:
    """Held-out conversations beside ``counted`` tokens of others (by default id 0 most often)."""
    times = times or [1] * len(rows)
    heldout = np.zeros(VOCAB, dtype=np.int64)
    for ids, copies in zip(rows, times, strict=True):
        np.add.at(heldout, np.array(ids, dtype=np.int64), copies)
    others = np.arange(VOCAB, 0, -1) if counted is None else counted
    return Coverage(
        counts=heldout + others,
        heldout_counts=heldout,
        target_vocab_size=VOCAB,
        tokenizer_length=VOCAB,
        tokenizer_fingerprint="sha256:a",
        data_fingerprint="sha256:b",
        rows_heldout=sum(times),
        sample=HeldoutSample(
            keys=np.arange(len(rows), dtype=np.int64),
            times=np.array(times, dtype=np.int64),
            lengths=np.array([len(ids) for ids in rows], dtype=np.int64),
            ids=np.array([token for ids in rows for token in ids], dtype=np.int64),
        ),
    )


def drawn(num: int, seed: int) -> list[list[int]]:
    """Conversations that differ in length and in how much of them a small vocabulary covers."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(num):
        rare = rng.beta(2, 6)
        length = int(rng.integers(5, 60))
        ids = np.where(rng.random(length) < rare, rng.integers(20, 40, length), 1)
        rows.append([int(token) for token in ids])
    return rows


def slow_bootstrap(
    rows: list[list[int]], times: list[int], kept: set[int], *, resamples: int, seed: int
) -> tuple[float, float]:
    """The same interval, one conversation at a time, with other random numbers."""
    rng = np.random.default_rng(seed)
    shares = []
    for _ in range(resamples):
        covered = total = 0
        for index in rng.integers(0, len(rows), size=len(rows)):
            covered += times[index] * sum(token in kept for token in rows[index])
            total += times[index] * len(rows[index])
        shares.append(covered / total)
    low, high = np.quantile(shares, [0.025, 0.975])
    return float(low), float(high)


def test_the_interval_is_that_of_a_slow_bootstrap() -> None:
    rows, times = drawn(60, seed=1), [1, 2, 3] * 20
    coverage = coverage_with(rows, times)
    found = heldout_interval(coverage, coverage.curve(), 20, resamples=4000)
    assert found is not None
    low, high = slow_bootstrap(rows, times, set(range(20)), resamples=4000, seed=9)
    assert found.low == pytest.approx(low, abs=0.08 * (high - low))
    assert found.high == pytest.approx(high, abs=0.08 * (high - low))
    assert (found.conversations, found.resampled, found.level) == (60, 60, 0.95)


def test_its_width_is_that_of_a_ratio_estimator() -> None:
    """Var(sum c / sum t) ~ sum (c - r t)^2 / (sum t)^2, the linearised variance of a ratio."""
    rows = drawn(400, seed=2)
    coverage = coverage_with(rows)
    found = heldout_interval(coverage, coverage.curve(), 20, resamples=4000)
    assert found is not None
    tokens = np.array([len(ids) for ids in rows])
    covered = np.array([sum(token < 20 for token in ids) for ids in rows])
    ratio = covered.sum() / tokens.sum()
    spread = np.sqrt(((covered - ratio * tokens) ** 2).sum()) / tokens.sum()
    width = 2 * statistics.NormalDist().inv_cdf(0.975) * spread
    assert found.high - found.low == pytest.approx(width, rel=0.05)
    assert (found.high + found.low) / 2 == pytest.approx(ratio, abs=0.05 * width)


def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    """Of 300 data sets; the law's own share: E[covered] / E[tokens] = 1 - 2 / 8 (beta(2, 6))."""
    held = 0
    for seed in range(300):
        coverage = coverage_with(drawn(80, seed=100 + seed))
        curve = coverage.curve()
        found = heldout_interval(coverage, curve, 20, resamples=400, seed=seed)
        assert found is not None
        held += found.low <= 0.75 <= found.high
    assert 0.91 <= held / 300 <= 0.98  # 0.95 less the bootstrap's known shortfall, +- 2.5 sigma


def test_the_same_seed_gives_the_same_interval_and_another_nearly_so() -> None:
    coverage = coverage_with(drawn(50, seed=3))
    curve = coverage.curve()
    one = heldout_interval(coverage, curve, 20)
    assert one == heldout_interval(coverage, curve, 20)
    other = heldout_interval(coverage, curve, 20, seed=1)
    assert one is not None
    assert other is not None
    assert one != other
    assert one.low == pytest.approx(other.low, abs=0.02)


def test_an_interval_alone_is_that_of_the_band_whatever_the_order_of_sizes() -> None:
    coverage = coverage_with(drawn(50, seed=3))
    curve = coverage.curve()
    band = heldout_band(coverage, curve, [25, 2, 20, 2])
    assert band == [heldout_interval(coverage, curve, k) for k in (25, 2, 20, 2)]


def test_a_sample_of_more_conversations_resamples_as_many_as_there_are() -> None:
    coverage = coverage_with(drawn(100, seed=4))
    larger = replace(coverage, rows_heldout=400)
    one = heldout_interval(coverage, coverage.curve(), 20, resamples=4000)
    four = heldout_interval(larger, larger.curve(), 20, resamples=4000)
    assert one is not None
    assert four is not None
    assert (four.conversations, four.resampled) == (100, 400)
    assert (one.high - one.low) / (four.high - four.low) == pytest.approx(2, rel=0.07)


def test_the_interval_stands_around_the_exact_share_not_the_samples() -> None:
    coverage = coverage_with(drawn(60, seed=5))
    heldout = coverage.heldout_counts.copy()
    heldout[1] += 5_000  # held-out tokens of conversations that the sample does not hold
    more = replace(
        coverage, counts=coverage.counts + heldout, heldout_counts=heldout, rows_heldout=120
    )
    curve = more.curve()
    found = heldout_interval(more, curve, 20)
    exact = curve.heldout_coverage(20)
    assert found is not None
    assert exact is not None
    assert found.low < exact < found.high <= 1
    alone = coverage.curve().heldout_coverage(20)
    assert alone is not None
    assert alone < found.low


@pytest.mark.parametrize("rows", [[], [[1, 2]], [[], []]])
def test_fewer_than_two_conversations_give_no_interval(rows: list[list[int]]) -> None:
    coverage = coverage_with(rows)
    assert heldout_interval(coverage, coverage.curve(), 3) is None
    assert heldout_band(coverage, coverage.curve(), [1, 3]) == []


def test_held_out_rows_do_not_seat_their_own_tokens() -> None:
    """Id 30 is frequent in held-out text alone: by all counts seat 0, by the others' seat 30."""
    coverage = coverage_with([[30] * 90, [30] * 80 + [0]])
    curve = coverage.curve()
    assert curve.order[0] == 30
    found = heldout_interval(coverage, curve, 10)
    miss = first_miss(coverage, curve, 10)
    assert found is not None
    assert found.high < 0.05
    assert miss is not None
    assert miss.within[16] == 1.0


# kept at k = 20: ids below 20 (the other rows are counted most for the lowest ids)
MISSES = [[1, 2, 25, 1, 30], [1] * 20, [31], [1] * 17 + [39], []]
TIMES = [2, 1, 1, 4, 3]


def test_first_misses_are_those_that_a_person_counts() -> None:
    coverage = coverage_with(MISSES, TIMES)
    found = first_miss(coverage, coverage.curve(), 20, within=(1, 2, 3, 17, 18, 1000))
    assert found is not None
    # of 8 conversations with a reply token (one of them twice, one four times)
    shares = {1: 1 / 8, 2: 1 / 8, 3: 3 / 8, 17: 3 / 8, 18: 7 / 8, 1000: 7 / 8}
    assert found.within == pytest.approx(shares)
    assert found.never == pytest.approx(1 / 8)
    assert found.tokens_before == pytest.approx((2 * 2 + 20 + 0 + 4 * 17) / 8)
    assert found.tokens_per_miss == pytest.approx((2 * 5 + 20 + 1 + 4 * 18) / (2 * 2 + 1 + 4))
    assert found.conversations == 4


def test_a_vocabulary_of_everything_misses_nothing() -> None:
    coverage = coverage_with(MISSES, TIMES)
    found = first_miss(coverage, coverage.curve(), VOCAB)
    assert found is not None
    assert (found.never, found.tokens_per_miss) == (1.0, None)
    assert set(found.within.values()) == {0.0}


def test_shares_at_many_sizes_are_those_at_each() -> None:
    coverage = coverage_with(drawn(30, seed=6), [1, 4, 2] * 10)
    curve = coverage.curve()
    sizes, within = [1, 2, 20, 33, VOCAB], (1, 5, 30)
    shares = miss_shares(coverage, curve, sizes, within)
    assert shares is not None
    for column, k in enumerate(sizes):
        found = first_miss(coverage, curve, k, within)
        assert found is not None
        assert shares[:, column] == pytest.approx(list(found.within.values()))


def test_a_token_beyond_the_tokenizer_is_always_missing() -> None:
    coverage = replace(coverage_with([[1, VOCAB - 1], [1, 1]]), tokenizer_length=VOCAB - 1)
    found = first_miss(coverage, coverage.curve(), VOCAB - 1)
    assert found is not None
    assert found.within[16] == 0.5


def test_without_a_sample_there_is_no_first_miss() -> None:
    coverage = coverage_with([[], []])
    assert first_miss(coverage, coverage.curve(), 3) is None
    assert miss_shares(coverage, coverage.curve(), [3]) is None
