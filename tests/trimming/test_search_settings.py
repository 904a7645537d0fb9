from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from vtrim.errors import OptionError
from vtrim.trimming.settings import parse_settings


def test_alpha_is_0_6_and_cmin_0_95_unless_given() -> None:
    settings = parse_settings()
    assert (settings.alpha, settings.cmin) == (Fraction(3, 5), Fraction(19, 20))
    assert (settings.num_trials, settings.seed, settings.sampler) == (100, 42, "tpe")


def test_the_paper_preset_is_alpha_0_5_without_a_floor_and_what_is_typed_wins() -> None:
    assert parse_settings(preset="paper").alpha == Fraction(1, 2)
    assert parse_settings(preset="paper").cmin == 0
    mixed = parse_settings(preset="paper", cmin="0.9")
    assert (mixed.alpha, mixed.cmin) == (Fraction(1, 2), Fraction(9, 10))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "default"),
        ({"preset": "paper"}, "paper"),
        ({"preset": "paper", "alpha": "0.50", "cmin": "0"}, "paper"),
        ({"preset": "paper", "cmin": "0.9"}, "custom"),
        ({"alpha": "0.3"}, "custom"),
    ],
)
def test_a_preset_is_recorded_only_where_its_values_hold(
    options: dict[str, str], name: str
) -> None:
    assert parse_settings(**options).preset == name


@pytest.mark.parametrize("typed", ["1e99999999", "1e-99999999", "0e" + "9" * 5000, "1e-401"])
def test_a_share_with_an_exponent_that_no_share_has_is_refused_at_once(typed: str) -> None:
    for option in ("alpha", "cmin"):
        with pytest.raises(OptionError, match=rf"^--{option} {typed}: not a number"):
            parse_settings(**{option: typed})


def test_a_share_may_be_written_with_an_exponent_or_as_a_fraction() -> None:
    assert parse_settings(cmin="95E-2").cmin == parse_settings(cmin="19/20").cmin
    assert parse_settings(cmin=1e-9).cmin == Fraction(1, 10**9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": "1.5"}, r"--alpha 1\.5: must lie in \[0, 1\]"),
        ({"alpha": "-0.1"}, r"--alpha -0\.1: must lie in \[0, 1\]"),
        ({"alpha": "nan"}, r"--alpha nan: not a number"),
        ({"alpha": "much"}, r"--alpha much: not a number"),
        ({"cmin": "1.2"}, r"--cmin 1\.2: must lie in \[0, 1\]"),
        ({"cmin": "95"}, r"share between 0 and 1 is meant, not a percentage.*type --cmin 0\.95"),
        ({"cmin": "-1"}, r"--cmin -1: must lie in \[0, 1\]"),
        ({"cmin": "1000"}, r"--cmin 1000: must lie in \[0, 1\]\.$"),
        ({"kmin": 0}, r"--kmin 0: must be at least 1"),
        ({"kmax": 0}, r"--kmax 0: must be at least 1"),
        ({"kmin": 10, "kmax": 5}, r"--kmin 10 is above --kmax 5: the range is empty"),
        ({"num_trials": 0}, r"--trials 0: must be at least 1"),
        ({"seed": -1}, r"--seed -1: must lie between"),
        ({"seed": 2**32}, r"--seed 4294967296: must lie between"),
        ({"sampler": "grid"}, r"--sampler grid: unknown\. Known: tpe, exact"),
        ({"preset": "fast"}, r"--preset fast: unknown\. Known: default, paper"),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_settings(**options)
