"""One data set with its curve and the sizes that the search chooses for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from vtrim.flops.cost import draft_flops, lm_head_flops
from vtrim.shape import DraftShape
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.curve import CoverageCurve
from vtrim.trimming.search import search
from vtrim.trimming.settings import parse_settings


@dataclass(frozen=True, eq=False)
class Study:
    """Coverage of one data set, and the draft that a vocabulary is chosen for."""

    coverage: Coverage
    shape: DraftShape

    @cached_property
    def curve(self) -> CoverageCurve:
        """The coverage curve, Llama 3.1's stop tokens seated first."""
        return self.coverage.curve()

    def best(self, alpha: str, cmin: str) -> int:
        """k*: the exact optimum of the search's utility."""
        settings = parse_settings(alpha=alpha, cmin=cmin, sampler="exact", num_trials=1)
        return search(self.coverage, self.shape, settings).exact.k

    def price(self, alpha: str) -> float:
        """Share of all reply tokens above which a token is worth its row, lambda (1 - a) / a."""
        weight = float(alpha)
        return self._row_share * (1 - weight) / weight

    def alpha_of(self, k: int) -> float:
        """The alpha from which on the token in seat ``k`` is worth its row."""
        share = int(self.curve.seat_counts[k - 1]) / self.coverage.total
        return self._row_share / (self._row_share + share)

    def saved(self, k: int) -> float:
        """R(k), the share of a draft token's FLOPs that a head of k rows saves."""
        return self._row_share * (self.shape.target_vocab_size - k)

    @property
    def _row_share(self) -> float:
        """What one row of the head adds to F(V)."""
        return lm_head_flops(self.shape.hidden_size, 1) / draft_flops(self.shape).total
