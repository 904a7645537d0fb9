from __future__ import annotations

from statistics import median

import pytest

from vtrim.errors import OptionError
from vtrim.evaluation.sweep_space import Knob, grid, named, num_points, parse_knob, parse_knobs
from vtrim.evaluation.sweep_tpe import next_point


def test_values_are_numbers_words_or_text() -> None:
    assert parse_knob("p-drop=0.02, 3,auto,true").values == (0.02, 3, "auto", True)
    assert parse_knob("p-drop=0.02").name == "p_drop"


def test_a_range_of_whole_numbers_lists_them_and_one_of_real_numbers_does_not() -> None:
    assert parse_knob("heads=3..6").values == (3, 4, 5, 6)
    real = parse_knob("p_drop=0.01..0.3")
    assert (real.values, real.low, real.high) == ((), 0.01, 0.3)
    assert parse_knob("p_drop=0..1").real == Knob(name="p_drop", low=0.0, high=1.0, listed=False)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("p_drop", "NAME=VALUE"),
        ("=0.1", "NAME=VALUE"),
        ("p_drop=", "a value is missing"),
        ("p_drop=0.1,,0.2", "a value is missing"),
        ("p_drop=0.1,0.10", "0.1 stands there twice"),
        ("p_drop=0.3..0.1", "upside down"),
        ("p_drop=0.1..0.1", "upside down"),
        ("p_drop=a..0.1", "between two numbers"),
        ("p_drop=0.1..", "between two numbers"),
        ("p_drop=0.1..inf", "between two numbers"),
    ],
)
def test_what_cannot_be_varied_is_refused(typed: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_knob(typed)


def test_no_knob_and_a_knob_given_twice_are_refused() -> None:
    with pytest.raises(OptionError, match="nothing to vary"):
        parse_knobs([])
    with pytest.raises(OptionError, match="heads: given twice"):
        parse_knobs(["heads=3", "heads=5"])


def test_a_grid_holds_all_combinations_and_the_last_knob_turns_fastest() -> None:
    knobs = parse_knobs(["heads=3,5", "criterion=naive,js"])
    assert [named(point) for point in grid(knobs)] == [
        "heads=3 criterion=naive",
        "heads=3 criterion=js",
        "heads=5 criterion=naive",
        "heads=5 criterion=js",
    ]
    assert num_points(knobs) == 4


def test_tpe_measures_every_combination_once_and_then_stops() -> None:
    knobs = parse_knobs(["heads=3,5,8", "criterion=naive,js"])
    found: list[tuple[dict[str, object], float, float]] = []
    while (point := next_point(knobs, found, seed=1)) is not None:  # type: ignore[arg-type]
        found.append((dict(point), len(found) * 1.0, 0.1))
    assert sorted(named(point) for point, _, _ in found) == sorted(  # type: ignore[arg-type]
        named(point) for point in grid(knobs)
    )


def test_tpe_suggests_the_same_in_one_call_or_in_two() -> None:
    knobs = parse_knobs(["p_drop=0.01..0.3", "heads=3..8", "criterion=naive,full"])
    found = [({"p_drop": 0.1, "heads": 4, "criterion": "full"}, 1.2, 0.05)]
    first = next_point(knobs, found, seed=3)
    assert first == next_point(knobs, found, seed=3)
    assert first is not None
    assert 0.01 <= float(str(first["p_drop"])) <= 0.3
    assert first["heads"] in range(3, 9)
    assert first != next_point(knobs, found, seed=4)


def test_tpe_moves_to_where_it_is_both_faster_and_nearer_to_the_target() -> None:
    knobs = parse_knobs(["p_drop=0.0..1.0"])
    found: list[tuple[dict[str, object], float, float]] = []
    for _ in range(60):
        point = next_point(knobs, found, seed=0)  # type: ignore[arg-type]
        assert point is not None
        away = abs(float(str(point["p_drop"])) - 0.7)
        found.append((dict(point), -away, away))
    away_of = [drift for _, _, drift in found]
    assert median(away_of[30:]) < median(away_of[:10]) / 2


def test_points_outside_the_knobs_are_no_points_of_theirs() -> None:
    knobs = parse_knobs(["heads=3,5"])
    found = [({"heads": 8}, 1.0, 0.0), ({"heads": 3}, 1.0, 0.0), ({"p_drop": 0.1}, 1.0, 0.0)]
    assert next_point(knobs, found, seed=0) == {"heads": 5}
