"""What is expected of a draft beside what was measured, by closed forms."""

from __future__ import annotations

from typing import Any

import pytest

from vtrim.evaluation.compare_expected import expected_change
from vtrim.evaluation.expected import Evidence, chain_length, draft_seconds, expected
from vtrim.flops.cost import draft_flops
from vtrim.shape import DraftShape

SHAPE = DraftShape(
    hidden_size=64,
    target_hidden_size=64,
    intermediate_size=128,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    target_vocab_size=4096,
    num_target_layers=8,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
    max_position_embeddings=512,
)
TIMES = {
    "num_draft_tokens": 3, "device": "cpu", "device_name": "a machine", "dtype": "float32",
    "threads": 1, "context": 128,
    "verify": [{"tokens": 1, "median_s": 0.05}, {"tokens": 4, "median_s": 0.07}],
    "draft_fit": {"base_s": 0.002, "per_row_s": 1e-6},
}  # fmt: skip
SEARCH = {
    "alpha": 0.6, "utility": 0.9, "coverage": 0.98, "heldout_coverage": 0.9, "throughput": None,
}  # fmt: skip


def result(**changes: Any) -> dict[str, Any]:
    """Two tokens a round of 0.1 s, a fifth of it drafting."""
    numbers: dict[str, Any] = {
        "acceptor": "greedy", "lossless": True, "drafter": "eagle", "num_draft_tokens": 3,
        "batch_size": 1, "temperature": 0.0, "dtype": "float32", "device": "cpu",
        "settings": {"adaptive": False}, "plain": {"generated_coverage": 0.95},
        "acceptance_length": 2.0, "rounds": 100, "drafted": 300, "seconds": 10.0,
        "shares": {"draft": 0.2, "verify": 0.7, "accept": 0.05, "other": 0.05},
        "tokens_per_second": 20.0, "plain_tokens_per_second": 18.0, "speedup": 20 / 18,
    }  # fmt: skip
    return {**numbers, **changes}


def evidence(size: int = 1024, **changes: Any) -> Evidence:
    known: dict[str, Any] = {"search": SEARCH, "prefixes": (0.5, 0.3, 0.1), "step_times": TIMES}
    return Evidence(shape=SHAPE, size=size, **{**known, **changes})


def test_lengths_are_the_sum_of_prefixes_and_the_geometric_sum_of_a0_c() -> None:
    found = expected(evidence(), result())["acceptance_length"]
    assert found["by_training"] == pytest.approx(1 + 0.5 + 0.3 + 0.1)
    a = 0.75 * 0.9
    assert found["by_model"] == pytest.approx(1 + a + a**2 + a**3)
    assert found["measured"] == 2.0
    assert chain_length(found["a0_measured"] * 0.95, 3) == pytest.approx(2.0)


def test_the_search_s_own_a0_counts() -> None:
    known = evidence(search={**SEARCH, "throughput": {"a0": 0.5}})
    assert expected(known, result())["acceptance_length"]["by_model"] == pytest.approx(
        chain_length(0.45, 3)
    )


def test_the_cost_model_s_speed_is_length_over_cycle() -> None:
    found = expected(evidence(), result())
    cycle = 0.07 + 3 * (0.002 + 1e-6 * 1024)
    assert found["tokens_per_second"]["by_length"] == pytest.approx(2.0 / cycle)
    assert found["tokens_per_second"]["plain_by_model"] == pytest.approx(20.0)
    assert found["verify_seconds"] == {"measured": pytest.approx(0.07), "expected": 0.07}
    assert found["draft_seconds"]["measured"] == draft_seconds(result()) == pytest.approx(2 / 300)
    assert "a machine" in found["times"]
    saved = 1 - draft_flops(SHAPE, 1024).total / draft_flops(SHAPE).total
    assert found["flops_reduction"] == pytest.approx(saved)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dtype": "bfloat16"}, "dtype float32, not of bfloat16"),
        ({"device": "cuda:0"}, "device cpu, not of cuda:0"),
        ({"batch_size": 4}, "of one sequence"),
        ({"num_draft_tokens": 5}, "times chains of 3"),
    ],
)
def test_times_of_other_rounds_expect_nothing(changes: dict[str, Any], said: str) -> None:
    found = expected(evidence(), result(**changes))
    assert found["times"] is None
    assert said in found["times_note"]
    assert found["tokens_per_second"]["by_length"] is None


def test_a_draft_that_the_run_does_not_know_still_has_its_own_costs() -> None:
    found = expected(evidence(search={}, prefixes=(), step_times={}), result())
    assert (found["utility"], found["coverage"]["heldout"]) == (None, None)
    assert found["acceptance_length"]["by_training"] is None
    assert found["acceptance_length"]["by_model"] is None
    assert found["acceptance_length"]["a0_measured"] is not None
    assert "vtrim flops --measure" in found["times_note"]


def test_training_says_nothing_of_longer_chains_or_of_sampling() -> None:
    for changes in ({"num_draft_tokens": 4}, {"temperature": 1.0}):
        found = expected(evidence(), result(**changes))["acceptance_length"]
        assert found["by_training"] is None


@pytest.mark.parametrize(
    "changes", [{"drafter": "tree"}, {"settings": {"adaptive": True}}, {"lossless": False}]
)
def test_the_model_says_nothing_of_trees_adaptive_lengths_or_lossy_rules(
    changes: dict[str, Any],
) -> None:
    found = expected(evidence(), result(**changes))
    assert found["acceptance_length"] is None
    assert "tokens_per_second" not in found
    assert found["draft_flops"] == draft_flops(SHAPE, 1024).total


def test_beside_a_lossy_rule_the_exact_one_counts() -> None:
    exact = {key: result()[key] for key in ("seconds", "shares", "drafted", "rounds")}
    exact |= {"acceptance_length": 1.5, "tokens_per_second": 15.0, "speedup": 15 / 18}
    found = expected(evidence(), result(lossless=False, acceptance_length=3.0, exact=exact))
    assert found["acceptance_length"]["measured"] == 1.5


def with_expected(size: int, coverage: float, utility: float, **changes: Any) -> dict[str, Any]:
    numbers = result(plain={"generated_coverage": coverage}, **changes)
    known = evidence(size=size, search={**SEARCH, "utility": utility})
    return {**numbers, "expected": expected(known, numbers)}


def test_a_trimmed_draft_is_predicted_from_the_full_one() -> None:
    full = with_expected(4096, 1.0, 0.6)
    shares = {"draft": 0.1, "verify": 0.8}
    trimmed = with_expected(
        1024, 0.9, 0.8, seconds=9.0, shares=shares, acceptance_length=1.9, speedup=1.3
    )
    found = expected_change(full, trimmed, ("full", "trimmed"))
    assert found is not None
    saved = 1 - draft_flops(SHAPE, 1024).total / draft_flops(SHAPE, 4096).total
    assert found["draft_step"]["predicted"] == pytest.approx(saved)
    assert found["draft_step"]["measured"] == pytest.approx(1 - 0.9 / 2.0)
    a = full["expected"]["acceptance_length"]["a0_measured"]
    length = chain_length(0.9 * a, 3)
    assert found["acceptance_length"]["predicted"] == pytest.approx(length)
    cycle = 0.1 - 0.02 * saved
    assert found["tokens_per_second_ratio"]["predicted"] == pytest.approx(length / cycle / 20.0)
    assert "agrees with the measured speed" in found["sentences"][-1]


def test_a_utility_that_points_the_other_way_is_said_to() -> None:
    full, trimmed = with_expected(4096, 1.0, 0.6), with_expected(1024, 0.9, 0.8, speedup=0.9)
    found = expected_change(full, trimmed, ("full", "trimmed"))
    assert found is not None
    assert "disagrees" in found["sentences"][-1]


@pytest.mark.parametrize(
    "changes", [{"num_draft_tokens": 5}, {"drafter": "tree"}, {"batch_size": 2}]
)
def test_other_rounds_are_not_predicted_from_each_other(changes: dict[str, Any]) -> None:
    pair = with_expected(4096, 1.0, 0.6), with_expected(1024, 0.9, 0.8, **changes)
    assert expected_change(*pair, ("full", "trimmed")) is None
    same = with_expected(1024, 0.9, 0.8)
    assert expected_change(same, same, ("a", "b")) is None
