from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrim.shape import DraftShape
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.frontier import alpha_curve, knee, pareto
from vtrim.trimming.objective import Objective
from vtrim.trimming.search import build_objective, search
from vtrim.trimming.settings import parse_settings

TOLERANCE = Fraction(1, 1000)


def objective_of(counts: list[int], stop_ids: tuple[int, ...] = (), cmin: str = "0") -> Objective:
    coverage = Coverage(
        counts=np.array(counts, dtype=np.int64),
        heldout_counts=np.zeros(len(counts), dtype=np.int64),
        target_vocab_size=len(counts),
        tokenizer_length=len(counts),
        tokenizer_fingerprint="t",
        data_fingerprint="d",
        stop_ids=stop_ids,
    )
    shape = DraftShape.from_target_config(
        {
            "vocab_size": len(counts),
            "hidden_size": 4,
            "intermediate_size": 3,
            "num_attention_heads": 1,
            "num_hidden_layers": 8,
            "max_position_embeddings": 16,
        }
    )
    return build_objective(coverage, shape, parse_settings(cmin=cmin, kmin=1))


counts_lists = st.lists(st.integers(0, 30), min_size=2, max_size=25).filter(any)


@given(counts_lists)
def test_no_size_up_to_the_fronts_end_is_dominated_and_every_one_beyond_is(
    counts: list[int],
) -> None:
    objective = objective_of(counts)
    end = objective.front_end
    shares = [objective.coverage(k) for k in range(1, len(counts) + 1)]
    for k, share in enumerate(shares, 1):
        dominated = share in shares[: k - 1]
        assert dominated == (k > end)


@given(counts_lists, st.data())
def test_the_knee_is_the_size_farthest_above_the_chord(
    counts: list[int], data: st.DataObject
) -> None:
    forced = data.draw(st.lists(st.integers(0, len(counts) - 1), unique=True, max_size=2))
    objective = objective_of(counts, tuple(forced))
    first, last = len(forced), objective.front_end
    if last <= first:
        assert knee(objective) == max(last, 1)
        return
    ends = [Fraction(objective.curve.covered(k), sum(counts)) for k in (first, last)]
    above = {
        k: Fraction(objective.curve.covered(k), sum(counts))
        - ends[0]
        - (ends[1] - ends[0]) * Fraction(k - first, last - first)
        for k in range(first, last + 1)
    }
    assert knee(objective) == max(1, min(k for k in above if above[k] == max(above.values())))


def test_the_knee_of_counts_beyond_64_bits_is_exact() -> None:
    # 4 10**18 tokens times 4 sizes leave 64-bit integers; sizes 1 and 2 differ by a quarter token
    counts = [2 * 10**18, 10**18, 5 * 10**17, 5 * 10**17 - 1]
    assert knee(objective_of(counts)) == 2


def test_the_named_points_of_the_ties_file(
    word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    result = search(word_coverage("g11_ties.jsonl"), toy_shape, parse_settings())
    found = result.pareto
    assert (found["front_end"], found["knee"]) == (8, 3)
    named = {point["name"]: point["k"] for point in found["points"]}
    assert named == {
        "knee": 3,
        "C 0.9": 4,
        "C 0.95": 6,
        "C 0.98": 7,
        "C 0.99": 8,
        "C 0.995": 8,
        "exact": 8,
    }
    assert [point["k"] for point in found["points"]] == sorted(named.values())
    at = {point["name"]: point for point in found["points"]}
    assert (at["knee"]["coverage"], at["knee"]["feasible"]) == (0.8, False)
    assert at["C 0.95"]["feasible"]
    assert result.to_json()["pareto"] == found


def test_marks_that_padding_puts_out_of_reach_are_left_out() -> None:
    objective = objective_of([50, 40, 10])
    cut = Coverage(
        counts=np.array([50, 40, 10]),
        heldout_counts=np.zeros(3, dtype=np.int64),
        target_vocab_size=3,
        tokenizer_length=2,
        tokenizer_fingerprint="t",
        data_fingerprint="d",
    )
    reachable = build_objective(
        cut,
        DraftShape.from_target_config(
            {
                "vocab_size": 3,
                "hidden_size": 4,
                "intermediate_size": 3,
                "num_attention_heads": 1,
                "num_hidden_layers": 8,
                "max_position_embeddings": 16,
            }
        ),
        parse_settings(cmin=0),
    )
    names = [point["name"] for point in pareto(reachable, {})["points"]]
    assert "C 0.9" in names
    assert "C 0.95" not in names
    assert "C 0.995" in [point["name"] for point in pareto(objective, {})["points"]]


@given(counts_lists, st.sampled_from(["0", "0.5", "0.95"]), st.data())
def test_the_alpha_interval_holds_exactly_the_alphas_at_which_no_size_is_better(
    counts: list[int], cmin: str, data: st.DataObject
) -> None:
    objective = objective_of(counts, cmin=cmin)
    k = data.draw(st.integers(objective.smallest_feasible(), objective.kmax))
    interval = alpha_curve(objective, k)["interval"]
    for step in range(41):
        alpha = Fraction(step, 40)
        utilities = {
            size: alpha * objective.coverage(size) + (1 - alpha) * objective.flops_reduction(size)
            for size in range(objective.smallest_feasible(), objective.kmax + 1)
        }
        slack = utilities[k] - max(utilities.values()) + TOLERANCE
        if abs(slack) < Fraction(1, 10**9):
            continue  # on the very end of the interval
        inside = interval is not None and interval[0] <= float(alpha) <= interval[1]
        assert inside == (slack > 0), (alpha, interval)


def test_k_over_alpha_is_that_of_the_hard_inputs(
    word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    result = search(word_coverage("g11_bulk.jsonl"), toy_shape, parse_settings(cmin=0))
    sizes = {row["alpha"]: row["k"] for row in result.alpha_curve["rows"]}
    assert [sizes[alpha] for alpha in (0.1, 0.3, 0.4, 0.5, 0.6)] == [12, 30, 43, 48, 48]
    assert not any(row["floor_binds"] for row in result.alpha_curve["rows"])
    floored = search(word_coverage("g11_bulk.jsonl"), toy_shape, parse_settings(cmin="0.95"))
    rows = floored.alpha_curve["rows"]
    assert [(row["k"], row["floor_binds"]) for row in rows[:4]] == [
        (31, True),
        (31, True),
        (31, True),
        (43, False),
    ]
    low, high = result.alpha_curve["interval"]
    assert low < 0.6 < high


@pytest.mark.parametrize("objective", ["utility", "budget"])
def test_every_search_is_saved_with_its_reasons(
    word_coverage: Callable[..., Coverage], toy_shape: DraftShape, objective: str
) -> None:
    settings = parse_settings(objective=objective)
    saved = search(word_coverage("g11_bulk.jsonl"), toy_shape, settings).to_json()
    assert {"pareto", "alpha_curve", "throughput", "objective", "value"} <= set(saved)
    assert len(saved["alpha_curve"]["rows"]) == 9
