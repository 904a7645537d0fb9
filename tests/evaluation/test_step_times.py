from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from vtrim.errors import OptionError
from vtrim.evaluation.step_times import (
    StepSettings,
    _draft,
    _with_head,
    default_sizes,
    fit_draft,
    measure_steps,
)
from vtrim.models.hub import load_config
from vtrim.models.target import Target, load_target
from vtrim.shape import DraftShape


@pytest.fixture(scope="module")
def target(data: Path) -> Target:
    """A tiny real target."""
    return load_target(str(data / "model" / "stories260k"))


@pytest.fixture(scope="module")
def shape(data: Path) -> DraftShape:
    """The shape of its draft."""
    return DraftShape.from_target_config(load_config(str(data / "model" / "stories260k")))


def test_every_length_and_size_is_timed_and_the_caches_are_left_as_they_were(
    target: Target, shape: DraftShape
) -> None:
    settings = StepSettings(num_draft_tokens=2, context=16, repeats=2, sizes=(64, 256, 512))
    done: list[int] = []
    measured = measure_steps(target, shape, settings, lambda: done.append(1))
    assert len(done) == settings.num_rounds == 18
    assert [row["tokens"] for row in measured["verify"]] == [1, 2, 3]
    assert [row["k"] for row in measured["draft"]] == [64, 256, 512]
    for row in (*measured["verify"], *measured["draft"]):
        assert 0 < row["q25_s"] <= row["median_s"] <= row["q75_s"]
    assert (measured["context"], measured["num_draft_tokens"], measured["batch"]) == (16, 2, 1)
    assert (measured["device"], measured["dtype"]) == ("cpu", "float32")
    assert measured["draft_fit"]["per_row_s"] >= 0


def test_a_context_without_room_for_a_round_is_refused(target: Target, shape: DraftShape) -> None:
    settings = StepSettings(
        num_draft_tokens=3, context=shape.max_position_embeddings, repeats=1, sizes=(64,)
    )
    with pytest.raises(OptionError, match="more than the target's"):
        measure_steps(target, shape, settings)


def test_a_draft_with_fewer_rows_shares_everything_and_gives_the_same_logits(
    target: Target, shape: DraftShape
) -> None:
    whole = _draft(shape, 512, target)
    part = _with_head(whole, 100)
    hidden = torch.randn(2, shape.hidden_size, generator=torch.Generator().manual_seed(0))
    assert part.lm_head.weight.data_ptr() == whole.lm_head.weight.data_ptr()
    assert torch.equal(part.vocab_ids, torch.arange(100))
    with torch.inference_mode():
        torch.testing.assert_close(part.logits(hidden), whole.logits(hidden)[:, :100])


def rows_of(times: dict[int, float]) -> list[dict[str, float]]:
    return [{"k": k, "median_s": seconds} for k, seconds in times.items()]


def test_the_line_through_exact_times_is_found(shape: DraftShape) -> None:
    exact = {k: 0.001 + 2e-6 * k for k in (64, 128, 256, 512)}
    fitted = fit_draft(rows_of(exact), shape, 3)
    assert fitted["draft_fit"]["base_s"] == pytest.approx(0.001)
    assert fitted["draft_fit"]["per_row_s"] == pytest.approx(2e-6)
    assert fitted["draft_fit"]["largest_error"] == pytest.approx(0, abs=1e-9)
    last = fitted["draft"][-1]
    assert (last["measured_reduction"], last["predicted_reduction"]) == (0, 0)
    assert fitted["draft"][0]["measured_reduction"] == pytest.approx(1 - 0.001128 / 0.002024)


def test_the_predicted_saving_counts_fc_once_a_round(shape: DraftShape) -> None:
    fitted = fit_draft(rows_of({256: 1.0, 512: 1.0}), shape, 4)
    d, i = shape.hidden_size, shape.intermediate_size
    query = shape.num_attention_heads * shape.head_dim
    key = shape.num_key_value_heads * shape.head_dim
    layer = 2 * (2 * d * (query + 2 * key) + query * d) + 6 * d * i
    full = layer + 2 * d * 512 + 6 * d * d / 4
    assert fitted["draft"][0]["predicted_reduction"] == pytest.approx(2 * d * 256 / full)


@pytest.mark.parametrize(
    "times",
    [{64: 0.002, 512: 0.001}, {64: 0.001}, {64: 1e-6, 512: 0.1, 4096: 0.9}],
    ids=["falling", "one size", "below 0 at k 0"],
)
def test_noise_never_gives_a_head_that_costs_less_than_nothing(
    shape: DraftShape, times: dict[int, float]
) -> None:
    fit = fit_draft(rows_of(times), shape, 3)["draft_fit"]
    assert fit["base_s"] >= 0
    assert fit["per_row_s"] >= 0
    assert np.isfinite(fit["largest_error"])


def test_the_sizes_span_the_head_and_hold_the_chosen_one() -> None:
    assert default_sizes(49152, 5852) == (3072, 5852, 6144, 12288, 24576, 49152)
    assert default_sizes(49152, 6144) == (3072, 6144, 12288, 24576, 49152)
    assert default_sizes(3) == (1, 3)
