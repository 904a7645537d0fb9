from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrim.errors import InputError, MismatchError, OptionError
from vtrim.shape import DraftShape
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.objective import Objective
from vtrim.trimming.search import build_objective
from vtrim.trimming.settings import parse_settings

HIDDEN = 4
SMALL = {
    "hidden_size": HIDDEN,
    "intermediate_size": 3,
    "num_attention_heads": 1,
    "num_hidden_layers": 8,
    "max_position_embeddings": 16,
}


def small_coverage(
    counts: list[int], usable: int | None = None, stop_ids: tuple[int, ...] = ()
) -> Coverage:
    return Coverage(
        counts=np.array(counts, dtype=np.int64),
        heldout_counts=np.zeros(len(counts), dtype=np.int64),
        target_vocab_size=len(counts),
        tokenizer_length=len(counts) if usable is None else usable,
        tokenizer_fingerprint="t",
        data_fingerprint="d",
        stop_ids=stop_ids,
    )


def small_objective(coverage: Coverage, **options: Any) -> Objective:
    shape = DraftShape.from_target_config({**SMALL, "vocab_size": coverage.target_vocab_size})
    return build_objective(coverage, shape, parse_settings(**options))


def scan(
    counts: list[int], usable: int, forced: list[int], alpha: Fraction, sizes: range
) -> Iterator[tuple[int, Fraction, Fraction]]:
    """(k, C, U) of every size, from the formulas alone: the slow reference."""
    d, i, head, vocab = HIDDEN, 3, HIDDEN, len(counts)
    rest = 2 * 3 * d * d + 2 * 2 * d * head + 2 * (2 * 2 * d * head) + 2 * head * d + 6 * d * i
    free = [token for token in range(usable) if token not in forced]
    free.sort(key=lambda token: (-counts[token], token))
    for k in sizes:
        kept = [*forced, *free][:k]
        coverage = Fraction(sum(counts[token] for token in kept), sum(counts))
        reduction = 1 - Fraction(rest + 2 * d * k, rest + 2 * d * vocab)
        yield k, coverage, alpha * coverage + (1 - alpha) * reduction


def best_by_scan(
    counts: list[int],
    usable: int,
    forced: list[int],
    alpha: Fraction,
    cmin: Fraction,
    sizes: range,
) -> int | None:
    feasible = [
        (utility, -k)
        for k, coverage, utility in scan(counts, usable, forced, alpha, sizes)
        if coverage >= cmin
    ]
    return -max(feasible)[1] if feasible else None


shares = st.fractions(0, 1, max_denominator=20)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=25), shares, shares, st.data())
def test_the_threshold_rule_finds_what_a_scan_of_every_size_finds(
    counts: list[int], alpha: Fraction, cmin: Fraction, data: st.DataObject
) -> None:
    counts[data.draw(st.integers(0, len(counts) - 1))] += 1
    usable = data.draw(st.integers(1, len(counts)))
    forced = data.draw(st.lists(st.integers(0, usable - 1), unique=True, max_size=3))
    kmax = data.draw(st.integers(max(1, len(forced)), usable))
    kmin = data.draw(st.integers(1, kmax))
    sizes = range(max(kmin, len(forced)), kmax + 1)
    objective = small_objective(
        small_coverage(counts, usable, tuple(forced)), alpha=alpha, cmin=cmin, kmin=kmin, kmax=kmax
    )
    expected = best_by_scan(counts, usable, forced, alpha, cmin, sizes)
    if expected is None:
        with pytest.raises(OptionError, match="cannot be reached"):
            objective.optimum()
        return
    assert objective.optimum() == expected
    found = {
        k: utility
        for k, coverage, utility in scan(counts, usable, forced, alpha, sizes)
        if coverage >= cmin
    }
    assert objective.utility(expected) == found[expected]
    assert objective.smallest_feasible() == min(found)
    tolerance = Fraction(1, 50)
    near = [k for k, utility in found.items() if utility >= found[expected] - tolerance]
    assert objective.plateau(expected, tolerance) == (min(near), max(near))


def test_counts_too_large_for_floats_are_still_compared_exactly() -> None:
    # this alpha makes a token worth its seat iff n > N / 39; one token more than 10**16 tips it,
    # which is below the precision of a float
    huge = 10**16
    head = [huge] * 39
    flops_full = small_objective(small_coverage(head)).flops_full
    alpha = Fraction(8 * 39, 8 * 39 + flops_full)
    indifferent = small_objective(small_coverage(head), alpha=alpha, cmin=0, kmin=1)
    assert indifferent.optimum() == 1
    tipped = [huge + 1, huge + 1, *[huge] * 36, huge - 2]
    worth_two = small_objective(small_coverage(tipped), alpha=alpha, cmin=0, kmin=1)
    assert worth_two.optimum() == 2


def test_a_weight_near_zero_overflows_nothing() -> None:
    objective = small_objective(small_coverage([9, 5, 1]), alpha="1e-60", cmin=0)
    assert objective.optimum() == 1


def test_at_alpha_1_the_smallest_size_that_covers_everything_wins() -> None:
    objective = small_objective(small_coverage([9, 0, 5, 0, 1]), alpha=1, cmin=0)
    assert objective.optimum() == 3


def test_at_alpha_0_only_the_floor_keeps_tokens() -> None:
    coverage = small_coverage([50, 30, 20])
    assert small_objective(coverage, alpha=0, cmin=0).optimum() == 1
    assert small_objective(coverage, alpha=0, cmin="0.8").optimum() == 2


def g14_cases(inputs: Path) -> list[tuple[str, int, dict[str, Any]]]:
    blocks = json.loads((inputs / "g14_search_expect.json").read_text(encoding="utf-8"))
    return [
        (block["file"], block["kmax"], result) for block in blocks for result in block["results"]
    ]


def test_the_optimum_is_the_one_that_fractions_over_every_size_gave(
    inputs: Path, word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    cases = g14_cases(inputs)
    assert len(cases) == 29
    for file, kmax, expected in cases:
        settings = parse_settings(alpha=expected["alpha"], cmin=expected["cmin"], kmin=1, kmax=kmax)
        objective = build_objective(word_coverage(file), toy_shape, settings)
        assert (objective.flops_full, objective.flops_per_row) == (79872, 128)
        if expected["k"] is None:
            with pytest.raises(OptionError, match=r"best coverage is 0\.94 \(k 5\)"):
                objective.optimum()
            continue
        point = objective.point(objective.optimum())
        assert point.k == expected["k"], (file, expected)
        assert point.coverage == pytest.approx(expected["C"], abs=1e-6)
        assert point.flops_reduction == pytest.approx(expected["R"], abs=1e-6)
        assert point.utility == pytest.approx(expected["U"], abs=1e-6)


def test_pinning_the_stop_token_moves_the_optimum_only_where_the_stop_token_is_rare(
    inputs: Path, word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    for file, kmax, expected in g14_cases(inputs):
        settings = parse_settings(alpha=expected["alpha"], cmin=expected["cmin"], kmin=1, kmax=kmax)
        coverage = word_coverage(file, stop_ids=(51,))
        objective = build_objective(coverage, toy_shape, settings)
        if expected["k"] is None:
            with pytest.raises(OptionError, match=r"best coverage is 0\.92 \(k 5, 1 of them"):
                objective.optimum()
        else:
            assert objective.optimum() == expected["k"]


def test_an_infeasible_floor_says_which_size_would_hold_it(
    word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    coverage = word_coverage("g11_ties.jsonl", stop_ids=(51,))
    settings = parse_settings(alpha="0.6", cmin="0.95", kmax=5)
    with pytest.raises(OptionError) as caught:
        build_objective(coverage, toy_shape, settings).optimum()
    assert str(caught.value) == (
        "--cmin 0.95 cannot be reached: the best coverage is 0.92 (k 5, 1 of them forced tokens). "
        "Lower --cmin, or raise --kmax to 6 or more."
    )


def test_a_floor_that_padding_makes_impossible_says_how_far_to_lower_it() -> None:
    coverage = small_coverage([50, 30, 20], usable=2)
    with pytest.raises(OptionError, match=r"coverage is 0\.8 \(k 2\)\. Lower --cmin to 0\.8"):
        small_objective(coverage, cmin="0.9").optimum()


def test_the_best_reachable_coverage_is_never_rounded_up_to_the_floor() -> None:
    coverage = small_coverage([9_499_999, 500_001], usable=1)
    with pytest.raises(OptionError, match=r"best coverage is 0\.949999 "):
        small_objective(coverage, cmin="0.95").optimum()


def test_the_range_defaults_to_50_and_50000_within_the_tokenizer(
    zipf_coverage: Callable[..., Coverage],
    word_coverage: Callable[..., Coverage],
    llama_shape: DraftShape,
    toy_shape: DraftShape,
) -> None:
    large = build_objective(zipf_coverage(1.3, 100_000), llama_shape, parse_settings())
    assert (large.kmin, large.kmax) == (50, 50_000)
    small = build_objective(word_coverage("g11_bulk.jsonl"), toy_shape, parse_settings())
    assert (small.kmin, small.kmax) == (1, 54)
    below_50 = build_objective(zipf_coverage(1.3, 100_000), llama_shape, parse_settings(kmax=20))
    assert (below_50.kmin, below_50.kmax) == (20, 20)
    above = build_objective(zipf_coverage(1.3, 100_000), llama_shape, parse_settings(kmax=60_000))
    assert above.kmax == 60_000


def test_a_kmax_above_the_tokenizer_is_refused_although_the_head_has_rows() -> None:
    with pytest.raises(OptionError, match="--kmax 3: the tokenizer has 2 ids"):
        small_objective(small_coverage([1, 1, 0], usable=2), kmax=3)


def test_a_kmin_above_the_tokenizer_leaves_an_empty_range() -> None:
    with pytest.raises(OptionError, match="--kmin 4 is above the largest size allowed here, 3"):
        small_objective(small_coverage([1, 1, 0]), kmin=4)


def test_more_forced_tokens_than_kmax_are_refused() -> None:
    with pytest.raises(OptionError, match=r"3 forced tokens .* do not fit into --kmax 2"):
        small_objective(small_coverage([1, 1, 0], stop_ids=(0, 2)), kmax=2, keep=[1])


def test_forced_tokens_raise_the_smallest_size_to_their_number() -> None:
    objective = small_objective(small_coverage([5, 1, 0], stop_ids=(1, 2)), alpha=0, cmin=0)
    assert (objective.kmin, objective.optimum()) == (2, 2)


def test_nothing_counted_is_nothing_to_search() -> None:
    with pytest.raises(InputError, match="no reply token was counted"):
        small_objective(small_coverage([0, 0, 0]))


def test_a_target_with_other_rows_than_the_counts_is_refused(toy_shape: DraftShape) -> None:
    from vtrim.trimming.search import search

    with pytest.raises(MismatchError, match="64 rows, but token id 69 was counted"):
        search(small_coverage([1] * 70), toy_shape, parse_settings())


def test_the_reduction_of_llama_3_1_8b_is_lambda_times_the_cut_rows(
    zipf_coverage: Callable[..., Coverage], llama_shape: DraftShape
) -> None:
    objective = build_objective(zipf_coverage(1.3, 100_000), llama_shape, parse_settings())
    assert float(objective.flops_reduction(128255)) == pytest.approx(5.0016e-6, rel=1e-5)
    assert float(objective.flops_reduction(13264)) == pytest.approx(0.5751, abs=5e-5)
    assert float(objective.flops_reduction(32000)) == pytest.approx(0.4814, abs=5e-5)
    assert objective.flops(128256) == 1_637_875_712
