"""Laws, and draws that depend on (seed, prompt, position, purpose) only."""

from __future__ import annotations

import math

import pytest
import torch

from vtrim.decoding.generation import GenerationSettings
from vtrim.decoding.sampling import COLDEST, Purpose, draw, keep_masks, law, uniform
from vtrim.errors import OptionError


def test_temperature_0_puts_all_mass_on_the_first_arg_max() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0], [5.0, -2.0, 0.0]], dtype=torch.bfloat16)
    assert law(logits, 0.0).exp().tolist() == [[0, 1, 0], [1, 0, 0]]


def test_a_law_is_the_softmax_of_the_logits_over_the_temperature_in_fp32() -> None:
    logits = torch.tensor([2.0, 0.0], dtype=torch.bfloat16)
    p = law(logits, 2.0)
    assert p.dtype == torch.float32
    torch.testing.assert_close(p.exp(), torch.tensor([math.e, 1.0]) / (math.e + 1))


@pytest.mark.parametrize("temperature", [1e-8, 0.5, 1.0, 100.0])
def test_extreme_logits_give_a_law_without_nan(temperature: float) -> None:
    logits = torch.tensor([3e38, -3e38, 0.0, -math.inf])
    p = law(logits, temperature).exp()
    assert p.tolist() == [1, 0, 0, 0]


def test_top_k_keeps_the_k_largest_and_renormalises() -> None:
    logits = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()
    torch.testing.assert_close(law(logits, 1.0, top_k=2).exp(), torch.tensor([0, 4 / 7, 0, 3 / 7]))


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.3, [1]), (0.45, [1, 3]), (0.75, [1, 2, 3]), (1.0, [0, 1, 2, 3])]
)
def test_top_p_keeps_the_smallest_most_likely_set_that_reaches_it(
    top_p: float, kept: list[int]
) -> None:
    logits = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()
    assert law(logits, 1.0, top_p=top_p)[0].isfinite().nonzero()[:, 0].tolist() == kept


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("spread", [0.0, 0.5, 2.0, 8.0])
@pytest.mark.parametrize("steps", [1.0, 1e-6])  # whole logits have many ties
def test_a_nucleus_of_a_large_vocabulary_is_that_of_a_full_sort(
    top_p: float, spread: float, steps: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = (spread * torch.randn(3, 4000, generator=generator) / steps).round() * steps
    quick = law(logits, 1.0, top_p=top_p)
    monkeypatch.setattr("vtrim.decoding.sampling.HEAD", 4000)
    assert torch.equal(law(logits, 1.0, top_p=top_p), quick)


def test_a_random_number_changes_with_each_part_of_its_place_and_with_its_purpose() -> None:
    places = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2**63, 0, 0)]
    numbers = [uniform(place, purpose) for place in places for purpose in Purpose]
    assert numbers == [uniform(place, purpose) for place in places for purpose in Purpose]
    assert len(set(numbers)) == len(numbers)
    assert all(0 <= number < 1 for number in numbers)


def test_the_first_number_of_a_place_is_the_one_without_an_index() -> None:
    place = (3, 1, 4)
    numbers = [uniform(place, Purpose.ACCEPT, index) for index in range(9)]
    assert numbers[0] == uniform(place, Purpose.ACCEPT) == 0.287902807288285
    others = [uniform((3, 1, at), Purpose.ACCEPT, index) for at in (5, 6) for index in range(9)]
    assert len({*numbers, *others}) == 27


def test_random_numbers_of_neighbouring_positions_are_uniform() -> None:
    numbers = torch.tensor([uniform((3, 1, position), Purpose.DRAFT) for position in range(20_000)])
    counts = torch.histc(numbers, bins=10, min=0, max=1)
    assert float(((counts - 2000) ** 2 / 2000).sum()) < 33.7  # 99.99 % quantile, 9 degrees


def test_a_head_has_the_same_mask_whatever_the_number_of_heads() -> None:
    five = keep_masks((1, 2, 3), num_heads=5, size=33, p_drop=0.3)
    two = keep_masks((1, 2, 3), num_heads=2, size=33, p_drop=0.3)
    assert five.shape == (5, 33)
    assert torch.equal(five[:2], two)


@pytest.mark.parametrize("p_drop", [0.05, 0.3, 0.9])
def test_masks_drop_the_stated_share_in_every_head(p_drop: float) -> None:
    kept = torch.stack(
        [keep_masks((0, 0, at), num_heads=4, size=101, p_drop=p_drop) for at in range(500)]
    )
    share = kept.double().mean(dim=(0, 2))
    five_sigma = 5 * math.sqrt(p_drop * (1 - p_drop) / (500 * 101))
    assert torch.all((share - (1 - p_drop)).abs() < five_sigma)


def test_draws_follow_the_weights_and_never_take_a_weight_of_0() -> None:
    weights = torch.tensor([0.0, 2.0, 0.0, 5.0, 3.0, 0.0])
    drawn = torch.stack([draw(weights, (5, 0, at), Purpose.TARGET) for at in range(20_000)])
    counts = torch.bincount(drawn, minlength=6).double()
    expected = weights.double() / 10 * 20_000
    assert counts[weights == 0].sum() == 0
    seen = expected > 0
    assert float(((counts - expected)[seen] ** 2 / expected[seen]).sum()) < 18.4  # 99.99 %, 2


@pytest.mark.parametrize(("number", "index"), [(0.0, 1), (1 - 2**-53, 3)])
@pytest.mark.parametrize("scale", [1e-20, 1.0, 3.0, 1e20])
def test_the_ends_of_the_unit_interval_hit_tokens_of_positive_weight(
    number: float, index: int, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtrim.decoding.sampling.uniform", lambda *_: number)
    weights = scale * torch.tensor([0.0, 0.3, 0.0, 0.1, 0.0])
    assert int(draw(weights, (0, 0, 0), Purpose.TARGET)) == index


def test_rows_are_drawn_each_from_its_own_weights() -> None:
    assert draw(torch.eye(3), (0, 0, 0), Purpose.DRAFT).tolist() == [0, 1, 2]


@pytest.mark.parametrize("temperature", [-1.0, 1e-46, COLDEST / 2, math.inf, math.nan])
def test_a_temperature_that_no_law_can_be_scaled_by_is_refused(temperature: float) -> None:
    with pytest.raises(OptionError, match=r"--temperature .*: give 0 \(greedy\) or a number"):
        GenerationSettings(
            max_new_tokens=1,
            stop_ids=frozenset(),
            temperature=temperature,
            num_draft_tokens=0,
            seed=0,
        )


def test_the_coldest_temperature_draws_like_greedy() -> None:
    logits = torch.tensor([1.0, 3.0, 2.999])
    assert law(logits, COLDEST, top_k=2, top_p=0.9).exp().tolist() == [0, 1, 0]
