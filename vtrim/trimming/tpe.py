"""The search of arXiv:2603.05210: a Tree-structured Parzen Estimator over the vocabulary size.

No size is tried twice by one search at a time: where TPE asks for one again, the nearest size not
tried yet is taken. Each trial has a random state of its own, made from the seed and the number of
trials before it, so the trials of a search do not depend on how many runs they were made in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.exceptions import DuplicatedStudyError
from optuna.samplers import TPESampler
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from vtrim.errors import InputError
from vtrim.trimming.objective import Objective, Point

STUDY_PREFIX = "vtrim "


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One size that the sampler tried."""

    number: int
    point: Point
    feasible: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLog:
    """The sizes tried, in order.

    num_resumed: how many of them the storage held before. num_other_studies: searches in the same
    storage that were made with other counts or settings, and left alone. exhausted: every allowed
    size was tried, so fewer trials than asked for were made.
    """

    trials: tuple[Trial, ...]
    num_resumed: int
    num_other_studies: int
    exhausted: bool


def tpe_trials(
    objective: Objective,
    *,
    num_trials: int,
    seed: int,
    on_trial: Callable[[], None] = lambda: None,
    storage: BaseStorage | None = None,
    counts_fingerprint: str = "",
    additional: bool = False,
) -> TrialLog:
    """The sizes that TPE tries, in order; equal arguments give equal trials.

    The coverage floor is a constraint of the study, and the smallest feasible size is trial 0:
    where the floor binds, 100 trials without it end 1e-4 to 3e-3 below the optimum. Trials of the
    same search that ``storage`` holds are the first ones; ``num_trials`` counts them unless
    ``additional``.

    Raises:
        OptionError: no allowed size holds the floor.
        InputError: the storage holds a trial that this search cannot have made.
    """
    first = objective.smallest_feasible()
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study, others = _study(objective, seed, storage or InMemoryStorage(), counts_fingerprint)
        tried = _tried(study, objective)
        resumed = len(tried)
        wanted = num_trials + (resumed if additional else 0)
        for _ in range(min(resumed, wanted)):
            on_trial()
        while len(tried) < min(wanted, objective.num_sizes):
            study.sampler = _UntriedSampler(seed=seed, tried=tried, first=first)
            tried[_try_one(study, objective)] = None
            on_trial()
    finally:
        optuna.logging.set_verbosity(verbosity)
    return TrialLog(
        trials=tuple(
            Trial(
                number=number,
                point=objective.point(k),
                feasible=objective.coverage(k) >= objective.cmin,
            )
            for number, k in enumerate(list(tried)[:wanted])
        ),
        num_resumed=min(resumed, wanted),
        num_other_studies=others,
        exhausted=wanted > objective.num_sizes,
    )


def best_trial(trials: tuple[Trial, ...]) -> Trial:
    """The feasible trial of the highest value, of the smallest k on ties."""
    feasible = [trial for trial in trials if trial.feasible]
    return max(feasible, key=lambda trial: (trial.point.value, -trial.point.k))


def study_name(objective: Objective, seed: int, counts_fingerprint: str) -> str:
    """The name under which a storage keeps this search: its objective and a fingerprint.

    Everything that decides which sizes are tried and what they are worth is in it, Optuna's
    version included, so a storage never mixes two searches.
    """
    made_of = {
        **objective.settings(),
        "seed": seed,
        "counts": counts_fingerprint,
        "optuna": optuna.__version__,
    }
    digest = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
    return f"{STUDY_PREFIX}{objective.name} {digest[:16]}"


def _study(
    objective: Objective, seed: int, storage: BaseStorage, counts_fingerprint: str
) -> tuple[optuna.Study, int]:
    """The study of this search, and how many others the storage holds."""
    name = study_name(objective, seed, counts_fingerprint)
    names = [study.study_name for study in storage.get_all_studies()]
    if name not in names:
        with suppress(DuplicatedStudyError):  # another search made it just now
            storage.create_new_study([StudyDirection.MAXIMIZE], name)
    study = optuna.load_study(
        study_name=name,
        storage=storage,
        sampler=_UntriedSampler(seed=seed, tried={}, first=objective.kmin),
        pruner=optuna.pruners.NopPruner(),
    )
    if "vtrim" not in study.user_attrs:  # for people who look into the storage
        study.set_user_attr("vtrim", {**objective.settings(), "counts": counts_fingerprint})
    return study, len([other for other in names if other != name])


def _tried(study: optuna.Study, objective: Objective) -> dict[int, None]:
    """The sizes of the finished trials, in order; one that was cut short does not count.

    Raises:
        InputError: a size outside the range, or none.
    """
    tried: dict[int, None] = {}
    for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        k = trial.params.get("k")
        if not isinstance(k, int) or not objective.kmin <= k <= objective.kmax:
            raise InputError(
                f"--storage: trial {trial.number} of '{study.study_name}' has size {k}, outside "
                f"{objective.kmin} to {objective.kmax}. Name another --storage."
            )
        tried[k] = None
    return tried


def _try_one(study: optuna.Study, objective: Objective) -> int:
    """Tries one more size and stores what it is worth."""
    trial = study.ask()
    k = trial.suggest_int("k", objective.kmin, objective.kmax, step=1, log=False)
    trial.set_constraint("coverage_floor", float(objective.cmin - objective.coverage(k)))
    study.tell(trial, float(objective.value(k)))
    return k


class _UntriedSampler(TPESampler):
    """TPE for one trial, with every argument written out that Optuna does not deprecate.

    tried: sizes it may not give. first: the size of the first trial of all.
    """

    def __init__(self, *, seed: int, tried: dict[int, None], first: int) -> None:
        own = int(np.random.SeedSequence([seed, len(tried)]).generate_state(1)[0])
        super().__init__(
            n_startup_trials=10,
            n_ei_candidates=24,
            seed=own,
            multivariate=False,
            group=False,
            constant_liar=False,
        )
        self._tried = tried
        self._first = first

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The size to try: TPE's, or the nearest one not tried yet, the smaller on ties."""
        if not self._tried:
            return self._first
        k = super().sample_independent(study, trial, param_name, param_distribution)
        if not isinstance(param_distribution, IntDistribution):
            return k
        low, high = param_distribution.low, param_distribution.high
        near = (size for step in count() for size in (k - step, k + step))
        return next(size for size in near if low <= size <= high and size not in self._tried)
