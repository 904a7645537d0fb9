from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrim.errors import OptionError
from vtrim.flops.times import StepTimes
from vtrim.shape import DraftShape
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.search import align, build_objective, search
from vtrim.trimming.settings import parse_settings
from vtrim.trimming.throughput import ThroughputObjective, acceptance_of, slim_terms

TIMES = StepTimes(
    verify_s=0.03,
    plain_s=0.028,
    draft_base_s=0.001,
    draft_per_row_s=8e-5,
    num_draft_tokens=3,
    batch=1,
    source="made up",
)


def slim_speedup(rho_tau: float, kappa: float, nu: float) -> float:
    # arXiv:2605.10453, against a draft with a full vocabulary
    return rho_tau * (1 + kappa) / (1 + nu * kappa)


def toy_coverage(counts: list[int], stop_ids: tuple[int, ...] = ()) -> Coverage:
    return Coverage(
        counts=np.array(counts, dtype=np.int64),
        heldout_counts=np.zeros(len(counts), dtype=np.int64),
        target_vocab_size=len(counts),
        tokenizer_length=len(counts),
        tokenizer_fingerprint="t",
        data_fingerprint="d",
        stop_ids=stop_ids,
    )


def toy_draft(vocab: int) -> DraftShape:
    return DraftShape.from_target_config(
        {
            "vocab_size": vocab,
            "hidden_size": 4,
            "intermediate_size": 3,
            "num_attention_heads": 1,
            "num_hidden_layers": 8,
            "max_position_embeddings": 16,
        }
    )


def speed_objective(
    coverage: Coverage, times: StepTimes = TIMES, **options: Any
) -> ThroughputObjective:
    settings = parse_settings(objective="throughput", **options)
    shape = toy_draft(coverage.target_vocab_size)
    objective = build_objective(coverage, shape, settings, times)
    assert isinstance(objective, ThroughputObjective)
    return objective


def exact_speed(objective: ThroughputObjective, k: int) -> Fraction:
    """tau(k) / (T_verify + L T_draft(k)) in fractions: the slow reference."""
    times = objective.times
    a = Fraction(objective.a0) * objective.coverage(k)
    tau = sum((a**j for j in range(times.num_draft_tokens + 1)), start=Fraction(0))
    step = Fraction(times.draft_base_s) + Fraction(times.draft_per_row_s) * k
    return times.batch * tau / (Fraction(times.verify_s) + times.num_draft_tokens * step)


counts_lists = st.lists(st.integers(0, 30), min_size=2, max_size=25).filter(any)
shares = st.fractions(0, 1, max_denominator=20)


@given(counts_lists, shares, st.sampled_from(["0.3", "0.75", "1"]), st.integers(1, 6))
def test_the_fastest_size_is_that_of_fractions_over_every_size(
    counts: list[int], cmin: Fraction, a0: str, drafted: int
) -> None:
    times = StepTimes(**{**TIMES.to_dict(), "num_draft_tokens": drafted})
    objective = speed_objective(toy_coverage(counts), times, cmin=cmin, a0=a0)
    sizes = range(objective.smallest_feasible(), objective.kmax + 1)
    speeds = {k: exact_speed(objective, k) for k in sizes}
    best = objective.optimum()
    assert objective.value(best) == pytest.approx(float(max(speeds.values())), rel=1e-12)
    assert float(speeds[best]) == pytest.approx(float(max(speeds.values())), rel=1e-12)
    low, high = objective.plateau(best)
    enough = 0.99 * float(speeds[best])
    assert all(float(speeds[k]) >= enough * (1 - 1e-12) for k in range(low, high + 1))
    for outside in (low - 1, high + 1):
        assert outside not in speeds or float(speeds[outside]) < enough * (1 + 1e-12)


def test_ties_in_speed_give_the_smaller_size() -> None:
    free_head = StepTimes(**{**TIMES.to_dict(), "draft_per_row_s": 0.0})
    objective = speed_objective(toy_coverage([5, 3, 0, 0, 0]), free_head, cmin=0)
    assert objective.value(2) == objective.value(5)
    assert objective.optimum() == 2


def test_the_predicted_speed_is_the_closed_form() -> None:
    objective = speed_objective(toy_coverage([60, 20, 10, 10]), cmin=0, a0="0.8")
    a = 0.8 * 0.9
    tau = (1 - a**4) / (1 - a)
    expected = objective.prediction(3)
    assert expected["acceptance_length"] == pytest.approx(tau)
    assert expected["tokens_per_second"] == pytest.approx(tau / (0.03 + 3 * (0.001 + 3 * 8e-5)))
    assert expected["speedup_over_plain"] == pytest.approx(0.028 * expected["tokens_per_second"])
    full = (1 - 0.8**4) / 0.2 / (0.03 + 3 * (0.001 + 4 * 8e-5))
    assert objective.full_speed == pytest.approx(full)
    assert expected["speedup_over_full"] == pytest.approx(expected["tokens_per_second"] / full)


def test_an_acceptance_of_1_divides_by_nothing() -> None:
    objective = speed_objective(toy_coverage([3, 1]), a0="1", cmin=0)
    assert objective.acceptance_length(2) == 4


@given(counts_lists, st.integers(1, 25))
def test_the_speed_up_is_that_of_slimspec(counts: list[int], k: int) -> None:
    objective = speed_objective(toy_coverage(counts), cmin=0)
    k = min(k, objective.kmax)
    expected = objective.prediction(k)["speedup_over_full"]
    assert slim_speedup(*slim_terms(objective, k)) == pytest.approx(expected, rel=1e-12)


def test_slimspec_breaks_even_where_the_shorter_chain_eats_the_cheaper_head() -> None:
    kappa, nu = 0.25, 0.1
    assert slim_speedup((1 + nu * kappa) / (1 + kappa), kappa, nu) == pytest.approx(1)
    # PAPERS.md: k = 13264, 6521, 4380 of 128256 rows give at most these
    for k, bound in ((13264, 1.218), (6521, 1.234), (4380, 1.239)):
        assert slim_speedup(1, 0.25, k / 128256) == pytest.approx(bound, abs=6e-4)


@given(counts_lists, shares, st.data())
def test_the_budget_is_the_smallest_size_that_covers_the_share(
    counts: list[int], cmin: Fraction, data: st.DataObject
) -> None:
    forced = data.draw(st.lists(st.integers(0, len(counts) - 1), unique=True, max_size=2))
    coverage = toy_coverage(counts, tuple(forced))
    settings = parse_settings(objective="budget", cmin=cmin)
    objective = build_objective(coverage, toy_draft(len(counts)), settings)
    enough = [
        k
        for k in range(max(1, len(forced)), len(counts) + 1)
        if Fraction(sum(counts[token] for token in objective.curve.ids(k)), sum(counts)) >= cmin
    ]
    assert objective.optimum() == min(enough)
    low, high = objective.plateau(min(enough))
    saved = objective.flops_reduction(min(enough))
    near = [k for k in enough if objective.flops_reduction(k) >= saved - Fraction(1, 1000)]
    assert (low, high) == (min(near), max(near))


def test_the_budgets_of_the_hard_inputs(
    inputs: Path, word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    bulk = word_coverage("g11_bulk.jsonl")
    for cmin, k in (("0.9", 21), ("0.95", 31), ("0.99", 44), ("1", 48)):
        settings = parse_settings(objective="budget", cmin=cmin)
        result = search(bulk, toy_shape, settings)
        assert (result.chosen.k, result.exact.k, result.tpe, result.trials) == (k, k, None, ())
        assert (result.regret, result.settings.sampler) == (0, "exact")
    blocks = json.loads((inputs / "g14_search_expect.json").read_text(encoding="utf-8"))
    at_zero = {
        (block["file"], row["cmin"]): row["k"]
        for block in blocks
        for row in block["results"]
        if row["alpha"] == "0"
    }
    assert len(at_zero) == 4  # the budget is the utility at alpha 0
    for (file, cmin), k in at_zero.items():
        settings = parse_settings(objective="budget", cmin=cmin)
        assert search(word_coverage(file), toy_shape, settings).chosen.k == k


def test_a_budget_may_be_smaller_than_50_rows(
    zipf_coverage: Callable[..., Coverage], llama_shape: DraftShape
) -> None:
    coverage = zipf_coverage(1.5, 100_000)
    k = search(coverage, llama_shape, parse_settings(objective="budget", cmin="0.2")).chosen.k
    assert k < 50
    assert coverage.curve().coverage(k) >= 0.2 > coverage.curve().coverage(k - 1)


def test_an_unreachable_budget_names_the_best_coverage(
    word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    settings = parse_settings(objective="budget", cmin="0.95", kmax=5)
    with pytest.raises(OptionError, match=r"best coverage is 0\.94 \(k 5\)"):
        search(word_coverage("g11_ties.jsonl"), toy_shape, settings)


def test_tpe_maximises_speed_too(
    zipf_coverage: Callable[..., Coverage], llama_shape: DraftShape
) -> None:
    times = StepTimes(**{**TIMES.to_dict(), "draft_per_row_s": 1e-7})
    for cmin in ("0", "0.95"):
        settings = parse_settings(objective="throughput", cmin=cmin)
        result = search(zipf_coverage(1.1, 3_000_000), llama_shape, settings, times=times)
        assert 0 <= result.regret <= 1e-4 * result.exact.value
        low, high = result.plateau
        assert low <= result.exact.k <= high
        saved = result.to_json()
        assert saved["throughput"]["tokens_per_second"] == result.chosen.value
        at = saved["curve"]["k"].index(result.chosen.k)
        assert saved["curve"]["tokens_per_second"][at] == result.chosen.value
        assert saved["value_unit"] == "tokens/s"
        predicted = saved["throughput"]
        assert slim_speedup(**predicted["slim"]) == pytest.approx(predicted["speedup_over_full"])
        assert predicted["heldout_tokens_per_second"] < predicted["tokens_per_second"]


def test_speed_without_times_is_refused(toy_shape: DraftShape) -> None:
    with pytest.raises(OptionError, match=r"flops --measure.*--gpu"):
        build_objective(toy_coverage([1] * 64), toy_shape, parse_settings(objective="throughput"))


@given(st.integers(1, 500), st.integers(1, 80), st.integers(1, 300), shares)
def test_an_aligned_size_is_a_multiple_inside_the_range_and_above_the_floor(
    k: int, multiple: int, kmax: int, cmin: Fraction
) -> None:
    objective = build_objective(
        toy_coverage([1] * 300), toy_draft(300), parse_settings(kmin=1, kmax=kmax, cmin=0)
    )
    settings = parse_settings(kmin=1, kmax=kmax, cmin=min(cmin, Fraction(kmax, 300)))
    objective = build_objective(toy_coverage([1] * 300), toy_draft(300), settings)
    k = max(min(k, kmax), objective.smallest_feasible())
    try:
        aligned = align(objective, k, multiple)
    except OptionError:
        assert kmax // multiple * multiple < objective.smallest_feasible()
        return
    assert aligned % multiple == 0
    assert objective.smallest_feasible() <= aligned <= kmax
    assert aligned - k < multiple
    assert aligned >= k or -(-k // multiple) * multiple > kmax


def test_alignment_comes_last_and_fills_like_any_size(
    word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    coverage = word_coverage("g11_ties.jsonl", stop_ids=(51,))
    result = search(coverage, toy_shape, parse_settings(align=16))
    assert (result.exact.k, result.chosen.k, result.aligned_from) == (8, 16, 8)
    assert (result.vocab.size, result.num_filled) == (16, 8)
    assert result.summary()["aligned_from"] == 8
    bulk = word_coverage("g11_bulk.jsonl")
    down = search(bulk, toy_shape, parse_settings(align=40, sampler="exact"))
    assert (down.exact.k, down.chosen.k, down.aligned_from) == (48, 40, 48)
    plain = search(coverage, toy_shape, parse_settings())
    assert (plain.summary()["align"], plain.summary()["aligned_from"]) == (None, None)


def test_an_alignment_that_no_allowed_size_has_is_refused(
    word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    with pytest.raises(OptionError, match=r"--align 64: no multiple of it lies between 6 .* 54"):
        search(word_coverage("g11_ties.jsonl"), toy_shape, parse_settings(align=64))


def test_a_measured_length_gives_back_its_acceptance() -> None:
    for tau in (1.0, 1.25, 1.5, 2.0):
        assert acceptance_of(tau, 1) == pytest.approx(tau - 1, abs=1e-12)
    for a in (0.1, 0.4, 0.9):
        tau = (1 - a**4) / (1 - a)
        assert acceptance_of(tau, 3) == pytest.approx(a, abs=1e-12)
    assert (acceptance_of(0.5, 3), acceptance_of(4.5, 3)) == (0, 1)
