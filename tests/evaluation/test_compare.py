"""Two results against each other, on rows written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vtrim.artifacts import write_json
from vtrim.errors import InputError, MismatchError
from vtrim.evaluation.compare import ACCEPTANCE, METRICS, compare_by, compare_rows
from vtrim.evaluation.compare_results import Result, compare_results, read_result

Rows = list[dict[str, Any]]


def rows(emitted: float = 20.0, seconds: float = 2.0, count: int = 8, **more: Any) -> Rows:
    """Prompts of their own length each, ten rounds a prompt."""
    return [
        {
            "origin": f"p.jsonl:{i}",
            "prompt": f"sha256:{i}",
            "emitted": emitted + i,
            "rounds": 10,
            "seconds": seconds,
            "plain_emitted": 20,
            "plain_seconds": 4.0,
            "log_prob": -10.0,
            **more,
        }
        for i in range(count)
    ]


def result(found: Rows, **changes: Any) -> Result:
    facts = {"target": "toy", "target_config_fingerprint": "c", "target_weights": "w"}
    settings = {"temperature": 0.0, "max_new_tokens": 12, "top_k": 0, "top_p": 1.0, "threads": 1}
    numbers = {
        "acceptor": "greedy", "lossless": True, "per_prompt": found,
        "provenance": {**facts, **changes.pop("facts", {})},
        "settings": {**settings, **changes.pop("settings", {})},
    }  # fmt: skip
    return Result("one", Path("one.json"), {**numbers, **changes})


def test_a_gain_on_all_prompts_is_told_with_its_size_interval_and_p() -> None:
    found = compare_by(ACCEPTANCE, rows(), rows(emitted=30.0), ("old", "new"))
    assert found is not None
    assert (found.a, found.b) == (pytest.approx(2.35), pytest.approx(3.35))
    assert found.difference == pytest.approx(1.0)
    assert found.ratio == pytest.approx(3.35 / 2.35)
    assert found.interval == (pytest.approx(1.0), pytest.approx(1.0))
    assert found.p_value == 2 / 2**8
    assert found.sentence == (
        "new emits 3.35 tokens a round, old 2.35 (+1.00, +42.6 %; 95 % interval of the difference "
        "+1.00 to +1.00, p = 0.008, 8 prompts): new is ahead, and chance alone seldom gives as "
        "much."
    )


def test_a_loss_is_said_to_be_one() -> None:
    found = compare_by(ACCEPTANCE, rows(emitted=30.0), rows(), ("old", "new"))
    assert found is not None
    assert found.sentence.endswith("new is behind, and chance alone seldom gives as much.")


def test_what_goes_up_and_down_is_no_difference() -> None:
    mixed = rows()
    for index, row in enumerate(mixed):
        row["emitted"] += 3 if index % 2 else -2
    found = compare_by(ACCEPTANCE, rows(), mixed, ("old", "new"))
    assert found is not None
    assert found.p_value is not None
    assert found.p_value > 0.05
    assert found.sentence.endswith("these prompts do not tell the two apart.")


def test_equal_results_do_not_differ() -> None:
    for one in compare_rows(rows(), rows(), ("a", "b")):
        assert (one.difference, one.p_value) == (0.0, 1.0)
        assert one.sentence.endswith("no difference.")


def test_four_prompts_tell_nothing() -> None:
    found = compare_by(ACCEPTANCE, rows(count=4), rows(emitted=90.0, count=4), ("a", "b"))
    assert found is not None
    assert found.interval is None
    assert found.sentence.endswith("too few prompts to tell.")


def test_rows_without_a_metric_leave_it_out() -> None:
    names = [one.metric for one in compare_rows(rows(), rows(), ("a", "b"))]
    assert names == [m.name for m in METRICS if m.name != "score"]
    scored = rows(score=1.0)
    scored[0]["score"] = None  # no recorded answer
    found = {one.metric: one for one in compare_rows(scored, rows(score=0.5), ("a", "b"))}
    assert (found["score"].a, found["score"].b, found["score"].prompts) == (1.0, 0.5, 7)
    idle = rows(emitted=0.0, rounds=0, count=1)
    assert compare_by(ACCEPTANCE, idle, idle, ("a", "b")) is None


def test_the_speedup_has_its_own_baseline_so_a_slower_machine_does_not_count() -> None:
    slow = rows(seconds=4.0, plain_seconds=8.0)
    found = compare_results(result(rows()), result(slow))
    by_name = {one["metric"]: one for one in found["comparisons"]}
    assert by_name["tokens_per_second"]["ratio"] == pytest.approx(0.5)
    assert by_name["speedup"]["difference"] == pytest.approx(0.0)
    (note,) = found["notes"]
    assert "-50.0 %" in note
    assert "believe the speed-up" in note


def test_prompts_are_paired_by_content_not_by_place() -> None:
    found = compare_results(result(rows()), result(rows()[::-1]))
    assert all(one["difference"] == 0 for one in found["comparisons"])


def test_scores_of_tasks_are_compared_prompt_by_prompt() -> None:
    def with_scores(values: list[float]) -> Result:
        scored = [
            {"prompt": f"sha256:{i}", "chosen": v, "plain": 0.0} for i, v in enumerate(values)
        ]
        return result(rows(), tasks={"gsm8k": {"scored": scored}})

    found = compare_results(with_scores([1.0] * 6), with_scores([0.0] * 3 + [1.0] * 3))
    (score,) = (one for one in found["comparisons"] if one["metric"] == "score")
    assert (score["a"], score["b"], score["prompts"]) == (1.0, 0.5, 6)
    assert score["p_value"] == 2 / 2**3  # three prompts fell, none rose


def test_what_else_differs_is_listed() -> None:
    other = result(rows(), dtype="float32", settings={"threads": 2}, engine={"name": "vllm"})
    found = compare_results(result(rows(), dtype="bfloat16"), other)
    assert found["differs"] == {
        "dtype": ["bfloat16", "float32"], "threads": [1, 2], "engine": ["local", "vllm"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (result(rows(count=7)), "7 of its 7 are among the 8 there"),
        (result([{**r, "prompt": r["prompt"] + "x"} for r in rows()]), "0 of its 8"),
        (result(rows(), facts={"target_config_fingerprint": "d"}), "another target (target)"),
        (result(rows(), facts={"target_weights": "v"}), "another target (weights)"),
        (result(rows(), settings={"temperature": 1.0}), "--temperature 1.0"),
        (result(rows(), settings={"max_new_tokens": 64}), "--max-new-tokens 64"),
    ],
)
def test_results_that_do_not_measure_the_same_are_refused(other: Result, said: str) -> None:
    with pytest.raises(MismatchError) as refused:
        compare_results(result(rows()), other)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "not a result of"),
        ({"acceptor": "greedy", "per_prompt": []}, "not a result of"),
        ({"acceptor": "greedy", "per_prompt": [{"origin": "p:1"}]}, "older vtrim"),
        ({"acceptor": "greedy", "per_prompt": [3]}, "older vtrim"),
    ],
)
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, content: Any, said: str) -> None:
    write_json(tmp_path / "x.json", content)
    with pytest.raises(InputError) as refused:
        read_result(tmp_path / "x.json", "x")
    assert said in str(refused.value)
    assert "x.json" in str(refused.value)
