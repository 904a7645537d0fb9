"""What DropMatch saw at the positions it judged, for the report; the paper's Tables 1 to 3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vtrim.decoding.acceptors.deviation import total_variation
from vtrim.decoding.acceptors.heads import Heads
from vtrim.decoding.acceptors.judging import Judging
from vtrim.decoding.acceptors.rule import Spot
from vtrim.decoding.sampling import law


@dataclass
class Diagnostics:
    """Counts over judged positions: those up to the first rejection of each proposal.

    Positions behind a rejected token are not judged, as their text is never emitted. A rule knows
    no stop tokens, so that what it keeps behind one is counted here and not in a ``Generation``.
    votes: how many heads share the most frequent arg-max -> positions; at_clean: [K] positions
    where each head's arg-max is the clean one; clean_outside: those where no head's is; verdicts:
    why drafted tokens stayed, or ``rejected``. The rest needs ``diagnose``: the clean probability
    (at temperature 1 when decoding greedily) of accepted tokens and of each head's arg-max, by
    votes the centroid's probability of the most frequent arg-max, total variations, and laws: by
    verdict, JS [nats] of the draft, of the farthest head and of the heads on average to the
    centroid (the criterion ``js`` always notes them). What passes both rules of Algorithm 1 stands
    under ``js`` there, its first one, and under ``majority``, the cheaper one, in the verdicts.
    """

    positions: int = 0
    votes: Counter[int] = field(default_factory=Counter)
    at_clean: list[int] = field(default_factory=list)
    clean_outside: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    criteria: Counter[str] = field(default_factory=Counter)
    p_drop: float | None = None
    laws: dict[str, list[tuple[float, float, float]]] = field(default_factory=dict)
    accepted: list[float] = field(default_factory=list)
    of_heads: list[list[float]] = field(default_factory=list)
    of_votes: dict[int, list[float]] = field(default_factory=dict)
    variations: list[float] = field(default_factory=list)
    calibration: dict[str, Any] | None = None

    def note(
        self,
        judging: Judging,
        spot: Spot,
        row: int,
        kept: int | None,
        verdict: str,
        diagnose: bool,
    ) -> None:
        """Counts one position. kept: the node that stays; verdict: why, or ``rejected``."""
        heads, clean = judging.heads(row), judging.clean(row)
        self.positions += 1
        self.verdicts[verdict] += 1
        self.criteria[judging.rules.criterion] += 1
        self.p_drop = judging.rules.p_drop
        hits = [int(token == clean) for token in heads.best]
        self.at_clean = [a + b for a, b in zip(self.at_clean or [0] * len(hits), hits, strict=True)]
        self.clean_outside += not any(hits)
        self.votes[_most_votes(heads)] += 1
        if diagnose or judging.rules.criterion == "js":
            near = judging.near(row)
            sides = (heads.distance, max(heads.radii), float(np.mean(heads.radii)))
            first = "js" if verdict == "majority" and near else verdict
            self.laws.setdefault(first, []).append(sides)
        if diagnose:
            self._look_closely(judging, spot, row, kept)

    def _look_closely(self, judging: Judging, spot: Spot, row: int, kept: int | None) -> None:
        """What takes passes over the vocabulary of its own."""
        heads = judging.heads(row)
        p = law(spot.logits, heads.temperature).exp()
        if kept is not None:
            self.accepted.append(float(p[judging.proposal.ids[kept]]))
        self.of_heads.append(p[heads.best].tolist())
        token, votes = Counter(heads.best).most_common(1)[0]
        self.of_votes.setdefault(votes, []).append(float(heads.log_centroid[token].exp()))
        self.variations.append(total_variation(judging, spot, row, kept))

    def summary(self) -> dict[str, Any]:
        """Plain numbers for a report; None where nothing was seen.

        ``p_drop``: the calibration's last where p was left to it, else the rule's; ``agreement``:
        share of heads at the clean arg-max (``agreement_by_head``: of each head; the
        paper's Table 1 is each head's own task score); ``head_histogram``: positions by votes for
        the most frequent arg-max, and ``head_probability`` its probability there (Table 2);
        ``js_by_verdict`` (Table 3); ``total_variation``: see ``deviation``.
        """
        count = self.positions
        sides = [side for found in self.laws.values() for side in found]
        return {
            "positions": count,
            "p_drop": (self.calibration or {"p_drop": self.p_drop})["p_drop"],
            "criteria": dict(self.criteria),
            "calibration": self.calibration,
            "agreement": sum(self.at_clean) / (count * len(self.at_clean)) if count else None,
            "agreement_by_head": [hits / count for hits in self.at_clean] if count else None,
            "clean_outside_heads": self.clean_outside / count if count else None,
            "head_histogram": {str(votes): self.votes[votes] for votes in sorted(self.votes)},
            "verdicts": dict(self.verdicts),
            "js_radius": _spread([side[1] for side in sides]),
            "js_draft": _spread([side[0] for side in sides]),
            "js_by_verdict": {name: _sides(found) for name, found in self.laws.items()},
            "head_probability": {
                str(votes): _mean(self.of_votes[votes]) for votes in sorted(self.of_votes)
            },
            "clean_probability_by_head": np.mean(self.of_heads, axis=0).tolist()
            if self.of_heads
            else None,
            "mean_clean_probability": _mean(self.accepted),
            "total_variation": _mean(self.variations),
        }


def _most_votes(heads: Heads) -> int:
    return max(Counter(heads.best).values())


def _sides(found: Sequence[tuple[float, float, float]]) -> dict[str, float]:
    """Means [nats] of one verdict's comparisons."""
    draft, farthest, heads = np.mean(found, axis=0).tolist()
    return {"positions": len(found), "draft": draft, "farthest_head": farthest, "heads": heads}


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    """Mean, median, 90 % quantile and maximum."""
    if not values:
        return None
    median, high, top = np.quantile(values, (0.5, 0.9, 1.0)).tolist()
    return {"mean": float(np.mean(values)), "p50": median, "p90": high, "max": top}
