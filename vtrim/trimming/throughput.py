"""Expected decoding speed as an objective: tau(k) / (T_verify + L T_draft(k)) (MATH.md section 3).

A chain draft of L tokens, each accepted with probability a(k) = a0 C(k) once those before it were:
tau(k) = 1 + a + .. + a^L tokens a round. Acceptance is bounded by coverage; a0 is what a draft with
the whole vocabulary would reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vtrim.flops.times import StepTimes
from vtrim.trimming.objective import Objective

PLATEAU = 0.01  # relative: speeds of two runs differ by more than that
# A public EAGLE-3 draft of Llama-3.1-8B (7 drafted tokens, T = 0) emits 3.75 tokens a round on
# MT-Bench, 4.5 on GSM8K (arXiv:2602.23881): a = 0.76 and 0.81.
DEFAULT_A0 = 0.75
A0_SHOWN = (0.5, 0.6, 0.7, 0.8, 0.9)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class ThroughputObjective(Objective):
    """Tokens per second that a trimmed draft is expected to reach.

    times: of the parts of a round. a0: chance that a drafted token is accepted when nothing is
    trimmed.
    """

    name = "throughput"
    unit = "tokens/s"

    times: StepTimes
    a0: float

    def settings(self) -> dict[str, Any]:
        """What decides the value besides the counts, as JSON values."""
        return {**super().settings(), "a0": self.a0, "times": self.times.to_dict()}

    def value(self, k: int) -> float:
        """Tokens per second at one size."""
        return float(self._speed(self.a0, self.curve.running_covered[min(k, self.curve.max_k)], k))

    def acceptance_length(self, k: int) -> float:
        """tau(k), tokens a round."""
        return self._tau(float(self.coverage(k)))

    def optimum(self, *, floor: bool = True) -> int:
        """The k of the highest speed that holds the floor (if asked), every size compared.

        Ties in float64 give the smaller k.

        Raises:
            OptionError: no allowed size holds the floor.
        """
        return self._best(self.a0, floor=floor)

    def plateau(self, k: int, tolerance: float = PLATEAU) -> tuple[int, int]:
        """The unbroken range of feasible sizes around ``k`` within that share of its speed."""
        low = min(self.smallest_feasible(), k)
        slow = self._speeds(self.a0, low, self.kmax) < (1 - tolerance) * self.value(k)
        breaks = np.flatnonzero(slow) + low
        below, above = breaks[breaks < k], breaks[breaks > k]
        first = int(below[-1]) + 1 if below.size else low
        return first, int(above[0]) - 1 if above.size else self.kmax

    @property
    def full_speed(self) -> float:
        """Tokens per second of a draft with all V rows in its head."""
        return self.value(self.target_vocab_size)

    @property
    def plain_speed(self) -> float:
        """Tokens per second without a draft."""
        return self.times.batch / self.times.plain_s

    def prediction(self, k: int) -> dict[str, Any]:
        """What is expected at one size, and against a full vocabulary and no draft at all."""
        speed, heldout = self.value(k), self.curve.heldout_coverage(k)
        unseen = None if heldout is None else self._tau(heldout) / self.times.cycle_s(k)
        return {
            "tokens_per_second": speed,
            "heldout_tokens_per_second": None if unseen is None else self.times.batch * unseen,
            "acceptance_length": self.acceptance_length(k),
            "speedup_over_full": speed / self.full_speed,
            "speedup_over_plain": speed / self.plain_speed,
            "draft_share": self.times.num_draft_tokens
            * self.times.draft_s(k)
            / self.times.cycle_s(k),
        }

    def a0_curve(self) -> list[dict[str, Any]]:
        """The optimum for other acceptances: how much the choice leans on a0."""
        rows = []
        for a0 in A0_SHOWN:
            k = self._best(a0, floor=True)
            speed = float(self._speeds(a0, k, k)[0])
            row = {"a0": a0, "k": k, "speedup_over_plain": speed / self.plain_speed}
            rows.append({**row, "floor_binds": k > self._best(a0, floor=False)})
        return rows

    def _tau(self, coverage: float) -> float:
        acceptance = self.a0 * coverage
        return sum(acceptance**drafted for drafted in range(self.times.num_draft_tokens + 1))

    def _best(self, a0: float, *, floor: bool) -> int:
        least = self.smallest_feasible() if floor else self.kmin
        # rows that cover nothing more only cost: no size beyond the front's end is faster
        last = min(max(self.front_end, least), self.kmax)
        return least + int(np.argmax(self._speeds(a0, least, last)))

    def _speeds(self, a0: float, first: int, last: int) -> Floats:
        covered = self.curve.running_covered[first : last + 1]
        speeds: Floats = self._speed(a0, covered, np.arange(first, last + 1, dtype=np.float64))
        return speeds

    def _speed(self, a0: float, covered: Any, sizes: Any) -> Any:
        """Tokens a second of one size or of arrays of them: the same roundings, so the same bits.

        In place, because each new array of a large head costs more than its arithmetic.
        """
        times = self.times
        acceptance = covered / self.curve.total
        acceptance *= a0
        tau = acceptance + 1.0  # 1 + a + .. + a^L by Horner's rule, also right at a = 1
        for _ in range(times.num_draft_tokens - 1):
            tau *= acceptance
            tau += 1.0
        cycle = sizes * (times.num_draft_tokens * times.draft_per_row_s)
        cycle += times.cycle_s(0)
        tau *= times.batch
        tau /= cycle
        return tau


def acceptance_of(acceptance_length: float, num_draft_tokens: int) -> float:
    """The a of 1 + a + .. + a^L = tau: what a measured length says of one drafted token.

    Lengths that no a in [0, 1] gives (below 1, above L + 1) give the end they lie beyond.
    """
    low, high = 0.0, 1.0
    for _ in range(60):  # halves of 1: past the precision of a double
        middle = (low + high) / 2
        if sum(middle**drafted for drafted in range(num_draft_tokens + 1)) < acceptance_length:
            low = middle
        else:
            high = middle
    return high if acceptance_length > 1 else 0.0


def slim_terms(objective: ThroughputObjective, k: int) -> tuple[float, float, float]:
    """(rho_tau, kappa, nu): the speed-up over a full head is rho_tau (1 + kappa) / (1 + nu kappa).

    rho_tau: ratio of accepted lengths; kappa: time in the full head over the rest of the whole
    cycle; nu: time in the trimmed head over the full one. Source: arXiv:2605.10453.
    """
    times, full = objective.times, objective.target_vocab_size
    head = times.num_draft_tokens * times.draft_per_row_s * full
    tau_full = objective.acceptance_length(objective.curve.max_k)
    rho = objective.acceptance_length(k) / tau_full
    return rho, head / times.cycle_s(0), k / full
