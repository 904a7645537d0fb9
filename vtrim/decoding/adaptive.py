"""How many tokens to draft, from what earlier rounds cost and gave (``--num-draft-tokens auto``).

Pure bookkeeping: the same records give the same choices. A choice depends on earlier rounds only,
so a lossless acceptor stays lossless, whatever the clock said. Not strictly where min_confidence
ends sampled chains: their recorded depth tells of draft numbers behind the rejected token, which
the next round draws the same positions with.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

DECAY = 0.98
"""What a round keeps of the weight of earlier ones: about the last 50 count."""
KEPT_TIMES = 9
"""Measured times that are kept for each number of drafted tokens."""
PROBE_EVERY = (16, 64)
"""Rounds between two probes: at first, and at most, once probes have changed nothing."""
_PRIOR_ACCEPTANCE = 0.5
_PRIOR_WEIGHT = 1.0  # rounds that the prior counts for


class DraftLength:
    """Picks the number of draft tokens of each round, in 0..most [tokens].

    It maximises expected emitted tokens per second. Each length's acceptance is the product of
    conditional acceptances by position, decayed counts that forget; each length's time is the
    median of its last measurements, with straight lines between measured lengths. Rarely it
    probes another length, so that it notices when drafting starts or stops to pay.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._accepted = [_Share() for _ in range(most)]  # given that the position was asked for
        self._offered = [_Share() for _ in range(most)]
        self._times: list[deque[float]] = [deque(maxlen=KEPT_TIMES) for _ in range(most + 1)]
        first: dict[int, None] = dict.fromkeys((most, (most + 1) // 2, min(most, 1), 0))
        self._trials: deque[int] = deque(
            [*first, *first]
        )  # twice: a first call may pay for a warm-up
        self._choice = 0
        self._calm = 0
        self._patience = PROBE_EVERY[0]
        self._probes = 0

    def next(self) -> int:
        """Draft tokens to ask for in the coming round [tokens]."""
        if self._trials:
            return self._trials.popleft()
        rates = self.rates()
        best = rates.index(max(rates))
        if best != self._choice:
            self._choice, self._calm, self._patience = best, 0, PROBE_EVERY[0]
        self._calm += 1
        if self._calm <= self._patience or self.most == 0:
            return best
        self._calm, self._patience = 0, min(2 * self._patience, PROBE_EVERY[1])
        return self._probe(rates, best)

    def _probe(self, rates: list[float], best: int) -> int:
        """Another length than the best: from 0 the most promising one, else a near one or 0."""
        self._probes += 1
        if best == 0:
            return rates.index(max(rates[1:]), 1)
        near = [min(best + 1, self.most), best - 1, 0]
        others = [length for length in dict.fromkeys(near) if length != best]
        return others[self._probes % len(others)]

    def record(
        self,
        asked: Sequence[int],
        drafted: Sequence[int],
        accepted: Sequence[int],
        seconds: float,
    ) -> None:
        """What one round gave and took [s], all of it: draft, verify, accept.

        One entry for each sequence of the batch. asked: what ``next`` said, or the sequence's room
        if that is smaller; drafted: tokens really drafted (depth of a tree), which a confidence
        stop or a missing n-gram may make fewer; accepted: how many of them the rule kept.
        """
        for share in (*self._accepted, *self._offered):
            share.forget()
        for length, offered, kept in zip(asked, drafted, accepted, strict=True):
            for position in range(min(length, self.most)):
                if offered >= position:
                    self._offered[position].add(offered > position)
                if kept >= position:
                    self._accepted[position].add(kept > position)
        self._times[min(max(drafted, default=0), self.most)].append(seconds)

    def rates(self) -> list[float]:
        """[most + 1] expected emitted tokens per second of each length [tokens/s]."""
        times = self._expected_times()
        emitted, chain, acceptance = 1.0, 1.0, _PRIOR_ACCEPTANCE
        rates = [emitted / times[0]]
        for position in range(self.most):
            # An unmeasured position is taken to do as well as the one before it.
            acceptance = self._accepted[position].mean(acceptance)
            chain *= acceptance
            emitted += chain
            rates.append(emitted / times[position + 1])
        return rates

    def _expected_times(self) -> list[float]:
        """[most + 1] seconds of a round that asks for each length; drafters may give fewer."""
        expected, reached = [self._time(0)], 1.0
        for position in range(self.most):
            reached *= self._offered[position].mean(1.0)
            more = self._time(position + 1) - self._time(position)
            expected.append(expected[-1] + reached * more)
        return expected

    def _time(self, drafted: int) -> float:
        """Seconds of a round with this many drafted tokens [s]; 1 while nothing was measured."""
        known = [length for length, times in enumerate(self._times) if times]
        if not known:
            return 1.0
        after = bisect_left(known, drafted)
        if after < len(known) and known[after] == drafted:
            return self._median(drafted)
        if after in (0, len(known)):
            return self._median(known[min(after, len(known) - 1)])
        left, right = known[after - 1], known[after]
        share = (drafted - left) / (right - left)
        return (1 - share) * self._median(left) + share * self._median(right)

    def _median(self, drafted: int) -> float:
        """The lower median: of two measurements the smaller."""
        times = sorted(self._times[drafted])
        return times[(len(times) - 1) // 2]


class _Share:
    """How often something held, in counts that decay."""

    def __init__(self) -> None:
        self.hits = 0.0
        self.tries = 0.0

    def add(self, held: bool) -> None:
        self.hits += held
        self.tries += 1

    def forget(self) -> None:
        self.hits *= DECAY
        self.tries *= DECAY

    def mean(self, prior: float) -> float:
        """The share, drawn towards ``prior`` while little is known."""
        return (self.hits + _PRIOR_WEIGHT * prior) / (self.tries + _PRIOR_WEIGHT)
