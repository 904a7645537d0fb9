"""What a Tree-structured Parzen Estimator wants to measure next, for two aims at once.

It looks for more speed and for less drift. Each suggestion has a random state of its own, made from
the seed and the number of points before it, so the points of a sweep do not depend on how many
calls they were measured in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import TPESampler
from optuna.study import StudyDirection
from optuna.trial import create_trial

from vtrim.evaluation.sweep_space import Knob, Point, Value, grid, num_points, spelled

_ASKS = 20
"""How often TPE may repeat itself before a combination not measured yet is drawn at random."""


def next_point(
    knobs: Sequence[Knob], found: Sequence[tuple[Point, float, float]], seed: int
) -> Point | None:
    """A point that was not measured; None when all were.

    found: points with their speed (more is better) and drift (less is better), in order.
    """
    inside = [one for one in found if within(knobs, one[0])]
    measured = [point for point, _, _ in inside]
    if len(measured) >= num_points(knobs):
        return None
    study = _study(knobs, inside, seed)
    for _ in range(_ASKS):
        trial = study.ask(_distributions(knobs))
        point = {knob.name: _value(knob, trial.params[knob.name]) for knob in knobs}
        if point not in measured:
            return point
        speed, drift = next((s, d) for p, s, d in inside if p == point)
        study.tell(trial, (speed, drift))
    listed = [Knob(name=knob.name, values=knob.values) for knob in knobs]
    left = [point for point in grid(listed) if point not in measured]
    return left[int(np.random.default_rng([seed, len(measured)]).integers(len(left)))]


def _study(
    knobs: Sequence[Knob], found: Sequence[tuple[Point, float, float]], seed: int
) -> optuna.Study:
    """A study that has seen these points."""
    sampler = TPESampler(
        n_startup_trials=10,
        n_ei_candidates=24,
        seed=int(np.random.SeedSequence([seed, len(found)]).generate_state(1)[0]),
        multivariate=False,
        group=False,
        constant_liar=False,
    )
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.create_study(
            directions=[StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE], sampler=sampler
        )
        for point, speed, drift in found:
            params = {knob.name: _parameter(knob, point) for knob in knobs}
            study.add_trial(
                create_trial(
                    params=params, distributions=_distributions(knobs), values=[speed, drift]
                )
            )
    finally:
        optuna.logging.set_verbosity(verbosity)
    return study


def _distributions(knobs: Sequence[Knob]) -> dict[str, BaseDistribution]:
    return {knob.name: _distribution(knob) for knob in knobs}


def _distribution(knob: Knob) -> BaseDistribution:
    """Listed values have no order (``auto`` stands among numbers); a range has one."""
    if knob.listed:
        return CategoricalDistribution([spelled(value) for value in knob.values])
    if knob.values:
        return IntDistribution(_whole(knob.values[0]), _whole(knob.values[-1]), log=False, step=1)
    return FloatDistribution(knob.low, knob.high, log=False)


def _value(knob: Knob, parameter: Any) -> Any:
    """The value that a parameter of the study stands for."""
    if knob.listed:
        return next(value for value in knob.values if spelled(value) == parameter)
    return parameter


def _parameter(knob: Knob, point: Mapping[str, Any]) -> Any:
    return spelled(point[knob.name]) if knob.listed else point[knob.name]


def within(knobs: Sequence[Knob], point: Point) -> bool:
    """Whether a measured point is one that these knobs allow."""
    names = {knob.name for knob in knobs}
    return set(point) == names and all(_allows(knob, point[knob.name]) for knob in knobs)


def _allows(knob: Knob, value: Value) -> bool:
    if knob.values:
        return value in knob.values
    return isinstance(value, int | float) and knob.low <= value <= knob.high


def _whole(value: Any) -> int:
    return int(value)
