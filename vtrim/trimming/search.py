"""The search for the size of the draft vocabulary: TPE, and beside it the exact optimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from vtrim import __version__
from vtrim.errors import InputError, OptionError
from vtrim.flops.cost import draft_flops, lm_head_flops
from vtrim.shape import DraftShape
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.curve import CoverageCurve
from vtrim.trimming.settings import SearchSettings
from vtrim.trimming.tpe import Trial, best_trial, tpe_trials
from vtrim.trimming.utility import Objective, Point
from vtrim.vocab import DraftVocab

PLATEAU = Fraction(1, 1000)  # sizes this close in utility are as good as equal
DEFAULT_KMIN = 50
DEFAULT_KMAX = 50_000
NUM_CURVE_POINTS = 400


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchResult:
    """What a search found; ``chosen`` is the size that its sampler stands for."""

    settings: SearchSettings
    shape: DraftShape
    objective: Objective
    exact: Point
    tpe: Point
    trials: tuple[Trial, ...]
    coverage_fingerprint: str
    tokenizer_fingerprint: str

    @property
    def chosen(self) -> Point:
        """The size that becomes the draft vocabulary."""
        return self.tpe if self.settings.sampler == "tpe" else self.exact

    @property
    def curve(self) -> CoverageCurve:
        """The coverage curve that was searched."""
        return self.objective.curve

    @cached_property
    def vocab(self) -> DraftVocab:
        """The chosen draft vocabulary."""
        return DraftVocab.of(self.curve.ids(self.chosen.k), self.shape.target_vocab_size)

    @property
    def regret(self) -> float:
        """Utility that TPE's best leaves on the table, never negative."""
        return float(self.objective.utility(self.exact.k) - self.objective.utility(self.tpe.k))

    @cached_property
    def plateau(self) -> tuple[int, int]:
        """Smallest and largest feasible size within 1e-3 of the optimum's utility."""
        return self.objective.plateau(self.exact.k, PLATEAU)

    @property
    def floor_binds(self) -> bool:
        """Whether the coverage floor, not the utility, decides the optimum."""
        return self.exact.k > self.objective.optimum(floor=False)

    @property
    def marginal_frequency(self) -> float | None:
        """Share of the counted tokens that the last seat covers; None if all are forced."""
        if self.chosen.k <= self.curve.num_forced:
            return None
        return int(self.curve.seat_counts[self.chosen.k - 1]) / self.curve.total

    @property
    def num_filled(self) -> int:
        """How many kept ids were never seen and only fill the size asked for."""
        return self.curve.num_filled(self.chosen.k)

    def summary(self) -> dict[str, Any]:
        """Everything but the trials and the curves, as JSON values."""
        settings, objective = self.settings, self.objective
        return {
            "vtrim": __version__,
            "k": self.chosen.k,
            "sampler": settings.sampler,
            "coverage": self.chosen.coverage,
            "heldout_coverage": self.curve.heldout_coverage(self.chosen.k),
            "flops_reduction": self.chosen.flops_reduction,
            "utility": self.chosen.utility,
            "exact": asdict(self.exact),
            "tpe": asdict(self.tpe),
            "regret": self.regret,
            "alpha": float(settings.alpha),
            "cmin": float(settings.cmin),
            "kmin": objective.kmin,
            "kmax": objective.kmax,
            "trials": settings.num_trials,
            "seed": settings.seed,
            "preset": settings.preset,
            "forced": self.curve.forced,
            "filled": self.num_filled,
            "marginal_frequency": self.marginal_frequency,
            "plateau": list(self.plateau),
            "floor_binds": self.floor_binds,
            "shape": self.shape.to_dict(),
            "flops_full": objective.flops_full,
            "flops_per_row": objective.flops_per_row,
            "coverage_fingerprint": self.coverage_fingerprint,
            "tokenizer_fingerprint": self.tokenizer_fingerprint,
            "vocab_fingerprint": self.vocab.fingerprint,
        }

    def to_json(self) -> dict[str, Any]:
        """The content of ``search.json``: the summary, every trial and the curves."""
        log = [
            {"number": trial.number, **asdict(trial.point), "feasible": trial.feasible}
            for trial in self.trials
        ]
        return {**self.summary(), "trial_log": log, "curve": self._curves()}

    def _curves(self) -> dict[str, list[Any]]:
        """Coverage, saved FLOPs and utility at about 400 sizes, the found ones among them."""
        spaced = np.geomspace(1, self.curve.max_k, NUM_CURVE_POINTS).round().astype(int).tolist()
        sizes = sorted({*spaced, self.exact.k, self.tpe.k})
        points = [self.objective.point(k) for k in sizes]
        return {
            "k": sizes,
            "coverage": [point.coverage for point in points],
            "heldout_coverage": [self.curve.heldout_coverage(k) for k in sizes],
            "flops_reduction": [point.flops_reduction for point in points],
            "utility": [point.utility for point in points],
        }


def search(
    coverage: Coverage,
    shape: DraftShape,
    settings: SearchSettings,
    on_trial: Callable[[], None] = lambda: None,
) -> SearchResult:
    """The draft vocabulary size of the highest utility, by TPE and exactly.

    Raises:
        OptionError: no size is allowed, or none of the allowed holds the coverage floor.
        InputError: nothing was counted.
        MismatchError: tokens were counted that the target has no row for.
    """
    objective = build_objective(coverage.for_target(shape.target_vocab_size), shape, settings)
    exact = objective.point(objective.optimum())
    trials = tpe_trials(
        objective, num_trials=settings.num_trials, seed=settings.seed, on_trial=on_trial
    )
    return SearchResult(
        settings=settings,
        shape=shape,
        objective=objective,
        exact=exact,
        tpe=best_trial(trials).point,
        trials=trials,
        coverage_fingerprint=coverage.fingerprint,
        tokenizer_fingerprint=coverage.tokenizer_fingerprint,
    )


def build_objective(coverage: Coverage, shape: DraftShape, settings: SearchSettings) -> Objective:
    """The utility to maximise and the range of sizes, from counts, shape and settings.

    Raises:
        OptionError: no size is allowed.
        InputError: nothing was counted.
    """
    if coverage.total == 0:
        raise InputError("coverage: no reply token was counted, so there is nothing to search.")
    curve = coverage.curve(settings.keep)
    kmin, kmax = _range(coverage, curve.num_forced, settings)
    return Objective(
        curve=curve,
        target_vocab_size=shape.target_vocab_size,
        flops_full=draft_flops(shape).total,
        flops_per_row=lm_head_flops(shape.hidden_size, 1),
        alpha=settings.alpha,
        cmin=settings.cmin,
        kmin=kmin,
        kmax=kmax,
    )


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
