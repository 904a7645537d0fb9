"""What ``--decode-eval`` decodes, and that it is what the real engine decodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from vtrim.decoding.generation import Generation
from vtrim.training.batch import TrainSample
from vtrim.training.decode_check import _counts, make_check, prompt_of
from vtrim.training.settings import TrainSettings


def sample(mask: list[int]) -> TrainSample:
    return TrainSample(np.arange(10, 10 + len(mask)), np.array(mask, dtype=bool), 0, None)


@pytest.mark.parametrize(
    ("mask", "prompt"),
    [
        ([0, 0, 1, 1, 1], [10, 11]),
        ([0, 1, 1, 0, 0, 1, 1, 0], [10, 11, 12, 13, 14]),
        ([1, 1, 0, 1], [10, 11, 12]),
        ([1, 1, 1], []),
    ],
)
def test_the_prompt_is_the_sample_up_to_its_last_reply(mask: list[int], prompt: list[int]) -> None:
    assert prompt_of(sample(mask)) == prompt


def test_accepted_length_counts_emitted_tokens_by_rounds_and_positions_by_what_was_drafted() -> (
    None
):
    reply = Generation(
        tokens=(1, 2, 3, 4, 5, 6),
        drafted=(3, 3, 1),
        accepted=(2, 0, 0),
        reasons={},
        off_argmax=0,
        seconds={},
    )
    counts = _counts(reply, 3)
    assert counts[0, :2].tolist() == [5, 3]
    assert counts[1].tolist() == [3, 3, 2, 2]
    assert counts[2].tolist() == [3, 1, 1, 0]


class Config:
    """A target that knows 8 positions."""

    max_position_embeddings = 8


class FakeTarget:
    """What ``make_check`` needs of a target."""

    config = Config()


def test_prompts_that_are_empty_or_fill_the_context_are_left_out() -> None:
    held = [sample([1, 1]), sample([0] * 8 + [1]), sample([0] * 7 + [1]), sample([0, 1])]
    settings = TrainSettings(decode_eval=10, ttt_steps=5)
    check = make_check(FakeTarget(), held, settings, [2], 100)  # type: ignore[arg-type]
    assert check is not None
    assert sorted(map(len, check.prompts)) == [1, 7]
    assert check.num_draft_tokens == 3
    assert make_check(FakeTarget(), held[:2], settings, [2], 100) is None  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_decoded_length_chooses_the_weights_and_is_measured_by_any_number_of_processes(
    training: Callable[..., Any],
) -> None:
    run = training()
    run.train(
        "--max-steps", 30, "--eval-every", 10, "--dtype", "fp32", "--decode-eval", 5,
    )  # fmt: skip
    decoded = run.entries("decode")
    assert [e["step"] for e in decoded] == [10, 20, 30]
    held = {e["step"]: e["joint_prefix"] for e in run.entries("heldout")}
    best = max(decoded, key=lambda e: (e["acceptance_length"], held[e["step"]], e["step"]))
    assert run.result()["best_step"] == best["step"]
    assert run.result()["decoded_acceptance_length"] == best["acceptance_length"]
    assert len(best["acceptance_by_position"]) == 3
    assert best["prompts"] == 5
    two = training("two")
    options = ["--max-steps", 10, "--eval-every", 10, "--dtype", "fp32", "--decode-eval", 5]
    two.train(*options, "--zero-stage", 3, "--micro-batch", 2, processes=2)
    assert two.entries("decode")[0]["prompts"] == 5
    assert two.entries("decode")[0]["rounds"] > 0
    assert two.entries("decode")[0]["acceptance_length"] >= 1.0
