from __future__ import annotations

from typing import Any

import pytest

from vtrim.errors import InputError, OptionError
from vtrim.flops.cost import DraftStep, draft_bytes
from vtrim.flops.roofline import GPUS, Gpu, find_gpu, roofline_times, target_weights
from vtrim.flops.times import StepTimes
from vtrim.shape import DraftShape

SLOW = Gpu(bandwidth=1e9, peak=1e18, memory=1e12, source="memory decides")
WEAK = Gpu(bandwidth=1e18, peak=1e9, memory=1e12, source="arithmetic decides")
MEASURED = {
    "verify": [{"tokens": tokens, "median_s": tokens / 100} for tokens in range(1, 5)],
    "draft_fit": {"base_s": 0.001, "per_row_s": 1e-6},
    "device_name": "toy",
    "dtype": "bfloat16",
    "threads": 1,
    "context": 256,
    "num_draft_tokens": 3,
}


@pytest.fixture
def llama() -> DraftShape:
    """The draft of Llama-3.1-8B."""
    return DraftShape.from_target_config(
        {
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "num_hidden_layers": 32,
            "max_position_embeddings": 131072,
            "vocab_size": 128256,
        }
    )


def test_the_weights_of_llama_3_1_8b_are_all_but_its_embedding(llama: DraftShape) -> None:
    # 8,030,261,248 parameters in all, less the embedding and 65 norms of 4096
    assert target_weights(llama) == 8_030_261_248 - 128_256 * 4096 - 65 * 4096


def test_where_memory_decides_times_are_bytes_over_bandwidth(llama: DraftShape) -> None:
    times = roofline_times(llama, SLOW, "slow", num_draft_tokens=3)
    assert times.verify_s == times.plain_s == pytest.approx(2 * target_weights(llama) / 1e9)
    first = draft_bytes(llama, 5000).total
    later = draft_bytes(llama, 5000, DraftStep(recursive=True)).total
    assert 3 * times.draft_s(5000) == pytest.approx((first + 2 * later) / 1e9)
    assert times.cycle_s(5000) == pytest.approx(times.verify_s + 3 * times.draft_s(5000))


def test_where_arithmetic_decides_each_token_of_each_sequence_counts(llama: DraftShape) -> None:
    one = roofline_times(llama, WEAK, "weak", num_draft_tokens=3)
    assert one.verify_s == pytest.approx(4 * one.plain_s)
    assert one.plain_s == pytest.approx(2 * target_weights(llama) / 1e9)
    many = roofline_times(llama, WEAK, "weak", num_draft_tokens=3, batch=8)
    assert many.verify_s == pytest.approx(8 * one.verify_s)
    assert many.draft_s(9000) == pytest.approx(8 * one.draft_s(9000))


def test_a_large_batch_costs_a_memory_bound_card_nothing(llama: DraftShape) -> None:
    one = roofline_times(llama, SLOW, "slow", num_draft_tokens=3)
    many = roofline_times(llama, SLOW, "slow", num_draft_tokens=3, batch=64)
    assert (many.verify_s, many.draft_s(9000)) == (one.verify_s, one.draft_s(9000))


def test_the_head_of_llama_3_1_8b_takes_the_share_that_slimspec_found(llama: DraftShape) -> None:
    # arXiv:2605.10453: T_head / T_rest is about 0.25 on an H100 at batch 1
    _, gpu = find_gpu("H100 SXM")
    times = roofline_times(llama, gpu, "H100 SXM", num_draft_tokens=4)
    head = 4 * times.draft_per_row_s * 128256
    assert head / times.cycle_s(0) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("H100 SXM", "H100 SXM"),
        ("h100", "H100 SXM"),
        ("NVIDIA-H100-SXM", "H100 SXM"),
        ("a100 80GB", "A100 80G"),
        ("a100", "A100 80G"),
        ("A100-40GB", "A100 40G"),
        ("GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("AMD Instinct MI300X", "MI300X"),
        ("l40s", "L40S"),
    ],
)
def test_a_gpu_is_found_however_its_name_is_written(typed: str, name: str) -> None:
    assert find_gpu(typed) == (name, GPUS[name])


def test_an_unknown_gpu_is_refused_with_those_known() -> None:
    with pytest.raises(OptionError, match=r"--gpu H900: unknown\. Known: B200, H200, H100 SXM"):
        find_gpu("H900")


@pytest.mark.parametrize("name", sorted(GPUS))
def test_every_gpu_is_a_plausible_one_with_a_source(name: str) -> None:
    gpu = GPUS[name]
    assert 1e11 < gpu.bandwidth < 1e13
    assert 1e13 < gpu.peak < 1e16
    assert 2e10 < gpu.memory < 3e11
    assert gpu.source


def test_measured_times_are_those_of_the_chain_asked_for() -> None:
    times = StepTimes.from_measurement(MEASURED, num_draft_tokens=3, origin="f.json")
    assert (times.verify_s, times.plain_s, times.num_draft_tokens) == (0.04, 0.01, 3)
    assert times.draft_s(1000) == pytest.approx(0.002)
    assert times.source == "measured: toy, bfloat16, 1 threads, 256 cached tokens"


@pytest.mark.parametrize("asked", [1, 2, 5])
def test_a_chain_of_another_length_than_was_measured_is_refused(asked: int) -> None:
    # fc runs once a round, so the mean step of another chain is another one
    message = rf"--num-draft-tokens {asked}: f\.json times chains of 3\. Run .*--num-draft-tokens 3"
    with pytest.raises(OptionError, match=message):
        StepTimes.from_measurement(MEASURED, num_draft_tokens=asked, origin="f.json")


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "impossible",
    [
        {"draft_fit": {"base_s": -9, "per_row_s": 1e-6}},
        {"draft_fit": {"base_s": NAN, "per_row_s": 1e-6}},
        {"draft_fit": {"base_s": 0.001, "per_row_s": -1e-9}},
        {"draft_fit": {"base_s": 0.001, "per_row_s": INF}},
        {"draft_fit": {"base_s": 0.001, "per_row_s": 10**400}},
        *(
            {"verify": [{"tokens": 1, "median_s": plain}, {"tokens": 4, "median_s": verify}]}
            for plain, verify in ((0, 1), (1, 0), (NAN, 1), (1, INF), (-1, 1), (5e-324, 1))
        ),
    ],
)
def test_times_that_cannot_be_are_refused_with_the_remedy(impossible: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"^f\.json: .*\. Run `vtrim flops --measure` again\.$"):
        StepTimes.from_measurement({**MEASURED, **impossible}, num_draft_tokens=3, origin="f.json")


def test_a_head_that_costs_nothing_measurable_is_allowed() -> None:
    free = {**MEASURED, "draft_fit": {"base_s": 0, "per_row_s": 0}}
    times = StepTimes.from_measurement(free, num_draft_tokens=3, origin="f.json")
    assert times.cycle_s(10**6) == 0.04


@pytest.mark.parametrize("left_out", ["verify", "draft_fit", "device_name", "num_draft_tokens"])
def test_a_file_that_is_no_measurement_is_refused(left_out: str) -> None:
    broken = {key: value for key, value in MEASURED.items() if key != left_out}
    with pytest.raises(InputError, match=r"f\.json: not a measurement"):
        StepTimes.from_measurement(broken, num_draft_tokens=3, origin="f.json")
