from __future__ import annotations

import json
from pathlib import Path

import pytest

from vtrim.errors import InputError, MismatchError, OptionError
from vtrim.evaluation.sweep import drift_of, pareto
from vtrim.evaluation.sweep_log import open_log

MADE = {"target": "a", "seed": 0}
POINT = {"knobs": {"p_drop": 0.1}, "speedup": 1.2}


def test_the_front_holds_the_points_that_no_other_one_beats() -> None:
    points = [(1.0, 0.0), (1.4, 0.1), (1.3, 0.2), (1.4, 0.3), (2.0, 0.5), (0.9, 0.0)]
    assert pareto(points) == [0, 1, 4]


def test_equal_points_are_on_the_front_once_and_unknown_ones_never() -> None:
    assert pareto([(1.0, 0.1), (1.0, 0.1), (None, 0.0), (2.0, None)]) == [0]
    assert pareto([]) == []


def test_drift_is_the_share_off_the_argmax_and_above_temperature_0_the_change_of_log_p() -> None:
    numbers = {"off_argmax_share": 0.2, "mean_log_prob": -1.5, "plain_mean_log_prob": -1.0}
    assert drift_of(numbers, 0.0) == 0.2
    assert drift_of(numbers, 0.7) == 0.5
    assert drift_of({**numbers, "mean_log_prob": None}, 0.7) is None


def test_a_log_goes_on_and_a_half_written_line_is_taken_off(tmp_path: Path) -> None:
    path = tmp_path / "sweep" / "a.jsonl"
    with open_log(path) as log:
        log.start(MADE)
        log.add(POINT)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"knobs": {"p_dr')
    with open_log(path) as log:
        log.start(MADE)
        assert (log.cut, log.points) == (16, [POINT])
        assert log.find({"p_drop": 0.1}) == POINT
        assert log.find({"p_drop": 0.2}) is None
        log.add({"knobs": {"p_drop": 0.2}})
    assert path.read_bytes() == whole + b'{"knobs": {"p_drop": 0.2}}\n'


def test_what_json_changes_in_writing_is_no_difference(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    made = {**MADE, "drafter skip_layers": (3, 4), "drafter options": {1: (2,)}}
    for _ in range(2):
        with open_log(path) as log:
            log.start(made)
            log.add(POINT)
    assert len(log.points) == 2


def test_a_first_line_cut_in_half_is_a_new_log(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"kind": "vtr')
    with open_log(path) as log:
        log.start(MADE)
    assert json.loads(path.read_text())["made_with"] == MADE


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"target": "b", "seed": 0}, 'another target: "a" there, "b" now'),
        ({"target": "a"}, "another seed: 0 there, null now"),
        ({**MADE, "dtype": "x"}, 'another dtype: null there, "x" now'),
    ],
)
def test_points_made_with_something_else_are_refused_by_name(
    changed: dict[str, object], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    with open_log(path) as log:
        log.start(MADE)
    before = path.read_bytes()
    with open_log(path) as log, pytest.raises(MismatchError, match=said):
        log.start(changed)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", ["[]\n", "{}\n", "no json\n", '{"kind": "vtrim sweep", "made_with": 3}\n']
)
def test_another_file_is_no_log(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    with open_log(path) as log, pytest.raises(InputError, match=r"a\.jsonl"):
        log.start(MADE)
    assert path.read_text() == content


def test_two_sweeps_do_not_write_to_one_log(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with (
        open_log(path),
        pytest.raises(OptionError, match="another sweep is writing"),
        open_log(path),
    ):
        pass
