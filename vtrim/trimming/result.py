"""What a search found, and the content of ``search.json``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vtrim import __version__
from vtrim.shape import DraftShape
from vtrim.trimming.analysis import Boundary, ForcedEffect, forced_effect, near_boundary
from vtrim.trimming.curve import CoverageCurve
from vtrim.trimming.frontier import alpha_curve, pareto
from vtrim.trimming.objective import Objective, Point
from vtrim.trimming.settings import SearchSettings
from vtrim.trimming.throughput import ThroughputObjective, slim_terms
from vtrim.trimming.tpe import Trial, TrialLog
from vtrim.vocab import DraftVocab

NUM_CURVE_POINTS = 400
NEAR = 5  # tokens named on each side of the edge


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchResult:
    """What a search found.

    chosen: the size that becomes the vocabulary: the best one of its sampler, then aligned. tpe,
    log: None where nothing was sampled.
    """

    settings: SearchSettings
    shape: DraftShape
    objective: Objective
    exact: Point
    tpe: Point | None
    chosen: Point
    log: TrialLog | None
    coverage_fingerprint: str
    tokenizer_fingerprint: str

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The sizes that TPE tried, in order."""
        return self.log.trials if self.log else ()

    @property
    def aligned_from(self) -> int | None:
        """The size before ``--align`` moved it; None where none was asked for."""
        if self.settings.align is None:
            return None
        best = self.tpe if self.tpe and self.settings.sampler == "tpe" else self.exact
        return best.k

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
        """Value that TPE's best leaves on the table, never negative; 0 where nothing was tried."""
        if self.tpe is None:
            return 0.0
        return float(self.objective.value(self.exact.k) - self.objective.value(self.tpe.k))

    @cached_property
    def plateau(self) -> tuple[int, int]:
        """Smallest and largest feasible size that is as good as the optimum for all purposes."""
        return self.objective.plateau(self.exact.k)

    @property
    def floor_binds(self) -> bool:
        """Whether the coverage floor, not the value, decides the optimum."""
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

    @cached_property
    def pareto(self) -> dict[str, Any]:
        """Named points of the front of coverage and saved FLOPs."""
        named = {"exact": self.exact.k}
        if self.chosen.k != self.exact.k:
            named["chosen"] = self.chosen.k
        return pareto(self.objective, named)

    @cached_property
    def alpha_curve(self) -> dict[str, Any]:
        """The optimum over alpha, and the alphas at which the chosen size is as good."""
        return alpha_curve(self.objective, self.chosen.k)

    @cached_property
    def throughput(self) -> dict[str, Any] | None:
        """What speed is expected, and from which times; None for the other objectives."""
        objective = self.objective
        if not isinstance(objective, ThroughputObjective):
            return None
        rho_tau, kappa, nu = slim_terms(objective, self.chosen.k)
        return {
            **objective.prediction(self.chosen.k),
            "slim": {"rho_tau": rho_tau, "kappa": kappa, "nu": nu},
            "full_tokens_per_second": objective.full_speed,
            "plain_tokens_per_second": objective.plain_speed,
            "a0": objective.a0,
            "a0_curve": objective.a0_curve(),
            "times": objective.times.to_dict(),
        }

    @cached_property
    def boundary(self) -> Boundary:
        """The last tokens inside the vocabulary and the first outside."""
        return near_boundary(self.curve, self.chosen.k, NEAR)

    @cached_property
    def forced_effect(self) -> ForcedEffect:
        """What the forced tokens changed in the vocabulary."""
        return forced_effect(self.curve, self.chosen.k)

    def summary(self) -> dict[str, Any]:
        """Everything but the trials and the curves, as JSON values."""
        settings, objective = self.settings, self.objective
        return {
            "vtrim": __version__,
            "k": self.chosen.k,
            "objective": objective.name,
            "sampler": settings.sampler,
            "coverage": self.chosen.coverage,
            "heldout_coverage": self.curve.heldout_coverage(self.chosen.k),
            "heldout_k": self.curve.smallest_heldout_k(settings.cmin),
            "flops_reduction": self.chosen.flops_reduction,
            "utility": self.chosen.utility,
            "value": self.chosen.value,
            "value_unit": objective.unit,
            "exact": asdict(self.exact),
            "tpe": asdict(self.tpe) if self.tpe else None,
            "regret": self.regret,
            "alpha": float(settings.alpha),
            "cmin": float(settings.cmin),
            "kmin": objective.kmin,
            "kmax": objective.kmax,
            "align": settings.align,
            "aligned_from": self.aligned_from,
            "trials": len(self.trials),
            "seed": settings.seed,
            "preset": settings.preset,
            "forced": self.curve.forced,
            "filled": self.num_filled,
            "marginal_frequency": self.marginal_frequency,
            "plateau": list(self.plateau),
            "floor_binds": self.floor_binds,
            "throughput": self.throughput,
            "shape": self.shape.to_dict(),
            "flops_full": objective.flops_full,
            "flops_per_row": objective.flops_per_row,
            "coverage_fingerprint": self.coverage_fingerprint,
            "tokenizer_fingerprint": self.tokenizer_fingerprint,
            "vocab_fingerprint": self.vocab.fingerprint,
        }

    def reasons(self) -> dict[str, Any]:
        """What defends the choice, as JSON values.

        Named points of the front, k* over alpha, the tokens at the edge, and what forcing changed.
        """
        return {
            "pareto": self.pareto,
            "alpha_curve": self.alpha_curve,
            "boundary": asdict(self.boundary),
            "forced_effect": asdict(self.forced_effect),
        }

    def to_json(self) -> dict[str, Any]:
        """The content of ``search.json``: the summary, its reasons, every trial and the curves."""
        log = [
            {"number": trial.number, **asdict(trial.point), "feasible": trial.feasible}
            for trial in self.trials
        ]
        return {
            **self.summary(),
            **self.reasons(),
            "trial_log": log,
            "curve": self._curves(),
        }

    def _curves(self) -> dict[str, list[Any]]:
        """Coverage, saved FLOPs and value at about 400 sizes, the found ones among them."""
        spaced = np.geomspace(1, self.curve.max_k, NUM_CURVE_POINTS).round().astype(int).tolist()
        found = (self.exact, self.chosen, *([self.tpe] if self.tpe else ()))
        sizes = sorted({*spaced, *(point.k for point in found)})
        points = [self.objective.point(k) for k in sizes]
        curves = {
            "k": sizes,
            "coverage": [point.coverage for point in points],
            "heldout_coverage": [self.curve.heldout_coverage(k) for k in sizes],
            "flops_reduction": [point.flops_reduction for point in points],
            "utility": [point.utility for point in points],
        }
        if isinstance(self.objective, ThroughputObjective):
            curves["tokens_per_second"] = [point.value for point in points]
            curves["acceptance_length"] = [self.objective.acceptance_length(k) for k in sizes]
        return curves
