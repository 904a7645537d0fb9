"""The lines below the table of ``vtrim eval``, from numbers written by hand."""

from __future__ import annotations

from typing import Any

from vtrim.cli.eval_lines import statistics

RULE: dict[str, Any] = {
    "acceptance_length_interval": [1.5, 1.75], "tokens_per_second_interval": [8.0, 9.5],
    "seconds_per_token": 0.1, "seconds_per_token_interval": [0.09, 0.125],
    "rounds": 200, "rejected_rounds": 100,
    "rejections": {"out_of_vocabulary": 25, "wrong_token": 75, "sampling": 0},
}  # fmt: skip
RESULT: dict[str, Any] = {
    "plain": {"generated_coverage": 0.95},
    "missing_tokens": [{"id": 7, "count": 3, "text": " [bold]"}, {"id": 9, "count": 1}],
    "against_exact": [{"sentence": "noisy emits more."}],
    "repeats": 3, "same_replies": 0.5,
    "noise": {
        "plain_spread": 0.02, "kernel_looks": 6, "kernel_spread": 0.04, "kernel_drift": -0.01,
    },
    "expected": {
        "coverage": {"heldout": 0.9},
        "acceptance_length": {
            "measured": 1.6, "by_training": 1.7, "by_model": 2.3, "a0": 0.75, "a0_measured": 0.4,
        },
        "tokens_per_second": {
            "measured": 8.5, "by_model": 12.0, "by_length": 9.0,
            "plain": 6.0, "plain_by_model": 7.0,
        },
    },
}  # fmt: skip


def said(result: dict[str, Any], rule: dict[str, Any] = RULE) -> str:
    return "\n".join(statistics(result, {"greedy": rule}))


def test_every_statistic_is_told_with_its_numbers() -> None:
    text = said(RESULT)
    for part in (
        "acceptance length 1.50-1.75, tokens/s 8.0-9.5",
        "90.0-125.0 ms (mean 100.0 ms)",
        "100 of 200 rounds rejected a token (greedy): 25.0 % the target's token is not in the",
        "75.0 % the draft had another token",
        "95.0 % of the tokens of plain decoding's replies",
        "it lacks most often ' [bold]' (3), id 9 (1)",
        "noisy emits more.",
        "1.70 by training's held-out rows, 2.30 by a0 0.75 x coverage 0.900",
        "; measured 1.60 (a0 0.40)",
        "9.0 with the measured length, 12.0 with the expected length; measured 8.5. Plain: 7.0",
        "Of 3 repeats each prompt's median run counts (50 % of the replies",
        "plain decoding's speed lay 2.0 % apart over 3 repeats; a fixed kernel, timed 6 times",
    ):
        assert part in text
    assert "the draw" not in text  # a cause that never came is not named
    assert "--repeats" not in text


def test_what_was_not_measured_is_not_told() -> None:
    assert said({"plain": None}, {}) == ""
    single = {"repeats": 1, "noise": {"plain_spread": None, "kernel_looks": 1}}
    assert said({**single, "plain": {"generated_coverage": 1.0}}, {"rejections": {}}) == ""
    looks = {"plain_spread": None, "kernel_looks": 9, "kernel_spread": 0.1, "kernel_drift": 0.0}
    assert "--repeats 3 tells more" in said({"noise": looks}, {})
