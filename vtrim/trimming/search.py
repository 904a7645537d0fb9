"""The search for the size of the draft vocabulary: TPE, and beside it the exact optimum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from optuna.storages import BaseStorage

from vtrim.errors import InputError, OptionError
from vtrim.flops.cost import draft_flops, lm_head_flops
from vtrim.flops.times import StepTimes
from vtrim.shape import DraftShape
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.objective import Objective
from vtrim.trimming.result import SearchResult
from vtrim.trimming.settings import SearchSettings
from vtrim.trimming.throughput import ThroughputObjective
from vtrim.trimming.tpe import best_trial, tpe_trials
from vtrim.trimming.utility import BudgetObjective, UtilityObjective

__all__ = ["SearchResult", "build_objective", "search"]

DEFAULT_KMIN = 50
DEFAULT_KMAX = 50_000


def search(
    coverage: Coverage,
    shape: DraftShape,
    settings: SearchSettings,
    on_trial: Callable[[], None] = lambda: None,
    *,
    times: StepTimes | None = None,
    storage: BaseStorage | None = None,
    additional: bool = False,
) -> SearchResult:
    """The best draft vocabulary size, by TPE and exactly.

    times: of the throughput objective. storage: keeps TPE's trials, memory by default; with
    ``additional`` the trials asked for come on top of those it holds.

    Raises:
        OptionError: no size is allowed, or none of the allowed holds the coverage floor.
        InputError: nothing was counted.
        MismatchError: tokens were counted that the target has no row for.
    """
    counted = coverage.for_target(shape.target_vocab_size)
    objective = build_objective(counted, shape, settings, times)
    exact = objective.point(objective.optimum())
    log = None
    if settings.objective != "budget":
        log = tpe_trials(
            objective,
            num_trials=settings.num_trials,
            seed=settings.seed,
            on_trial=on_trial,
            storage=storage,
            counts_fingerprint=coverage.fingerprint,
            additional=additional,
        )
    tpe = best_trial(log.trials).point if log else None
    best = tpe if tpe is not None and settings.sampler == "tpe" else exact
    return SearchResult(
        settings=settings,
        shape=shape,
        objective=objective,
        exact=exact,
        tpe=tpe,
        chosen=objective.point(align(objective, best.k, settings.align)),
        log=log,
        coverage_fingerprint=coverage.fingerprint,
        tokenizer_fingerprint=coverage.tokenizer_fingerprint,
    )


def align(objective: Objective, k: int, multiple: int | None) -> int:
    """``k`` rounded up to a multiple, or down where that would leave the allowed sizes.

    Raises:
        OptionError: no multiple is allowed and holds the floor.
    """
    if multiple is None:
        return k
    up = -(-k // multiple) * multiple
    if up <= objective.kmax:
        return up
    down = objective.kmax // multiple * multiple
    least = objective.smallest_feasible()
    if down < least:
        raise OptionError(
            f"--align {multiple}: no multiple of it lies between {least} (the smallest size of "
            f"the range that holds the floor) and {objective.kmax} (the largest). Lower --align "
            "or --cmin, or raise --kmax."
        )
    return down


def build_objective(
    coverage: Coverage,
    shape: DraftShape,
    settings: SearchSettings,
    times: StepTimes | None = None,
) -> Objective:
    """What to maximise and the range of sizes, from counts, shape and settings.

    Raises:
        OptionError: no size is allowed, or speed is to be maximised and no times are given.
        InputError: nothing was counted.
    """
    if coverage.total == 0:
        raise InputError("coverage: no reply token was counted, so there is nothing to search.")
    curve = coverage.curve(settings.keep)
    kmin, kmax = _range(coverage, curve.num_forced, settings)
    common: dict[str, Any] = {
        "curve": curve,
        "target_vocab_size": shape.target_vocab_size,
        "flops_full": draft_flops(shape).total,
        "flops_per_row": lm_head_flops(shape.hidden_size, 1),
        "alpha": settings.alpha,
        "cmin": settings.cmin,
        "kmin": kmin,
        "kmax": kmax,
    }
    if settings.objective == "utility":
        return UtilityObjective(**common)
    if settings.objective == "budget":
        return BudgetObjective(**common)
    if times is None:
        raise OptionError(
            "--objective throughput needs the times of target and draft: run `vtrim flops "
            "--measure` first, or name a GPU with --gpu."
        )
    return ThroughputObjective(**common, times=times, a0=settings.a0)


def _range(coverage: Coverage, num_forced: int, settings: SearchSettings) -> tuple[int, int]:
    """The smallest and largest size allowed; forced tokens raise the smallest to their number."""
    usable = coverage.usable_ids
    if settings.kmax is not None and settings.kmax > usable:
        raise OptionError(
            f"--kmax {settings.kmax}: the tokenizer has {usable} ids; a draft vocabulary cannot "
            f"hold more. Lower --kmax to {usable} or leave it out."
        )
    kmax = settings.kmax or min(DEFAULT_KMAX, usable)
    default_kmin = min(DEFAULT_KMIN, kmax) if coverage.distinct >= DEFAULT_KMIN else 1
    if settings.objective == "budget":
        default_kmin = 1  # the smallest size of a coverage, however small
    kmin = settings.kmin or default_kmin
    if kmin > kmax:
        raise OptionError(
            f"--kmin {kmin} is above the largest size allowed here, {kmax}: the range is empty. "
            "Lower --kmin or give --kmax."
        )
    if num_forced > kmax:
        raise OptionError(
            f"{num_forced} forced tokens (stop tokens and --keep) do not fit into --kmax {kmax}. "
            "Raise --kmax or keep fewer."
        )
    return max(kmin, num_forced), kmax
