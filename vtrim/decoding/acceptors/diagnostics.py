"""What DropMatch saw at the positions it judged, for the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from vtrim.decoding.sampling import law


@dataclass
class Diagnostics:
    """Counts over judged positions: those up to the first rejection of each chain.

    Positions behind a rejected token are not judged, as their text is never emitted.
    votes: how many heads share the most frequent arg-max -> positions; radii and distances: JS
    [nats] of the farthest head and of the draft to the centroid; probabilities: of accepted
    tokens under the clean law (temperature 1 when decoding greedily).
    """

    positions: int = 0
    heads: int = 0
    heads_at_clean_argmax: int = 0
    votes: Counter[int] = field(default_factory=Counter)
    radii: list[float] = field(default_factory=list)
    distances: list[float] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)

    def add_heads(self, best: Sequence[int], clean: int) -> None:
        """Counts one position. best: [K] arg-max of each head; clean: the target's own."""
        self.positions += 1
        self.heads += len(best)
        self.heads_at_clean_argmax += best.count(clean)
        self.votes[max(Counter(best).values())] += 1

    def add_distances(self, radius: float, distance: float) -> None:
        """Keeps the two sides of one JS comparison [nats]."""
        self.radii.append(radius)
        self.distances.append(distance)

    def add_accepted(self, logits: Tensor, temperature: float, token: int) -> None:
        """Keeps the clean probability of an accepted token. logits: [V] clean."""
        self.probabilities.append(float(law(logits, temperature or 1.0)[token].exp()))

    def summary(self) -> dict[str, Any]:
        """Plain numbers for a report; None where nothing was seen.

        ``agreement`` is the share of heads equal to the clean arg-max, ``head_histogram`` the
        number of positions by votes for the most frequent arg-max.
        """
        return {
            "positions": self.positions,
            "agreement": self.heads_at_clean_argmax / self.heads if self.heads else None,
            "head_histogram": {str(votes): self.votes[votes] for votes in sorted(self.votes)},
            "js_radius": _spread(self.radii),
            "js_draft": _spread(self.distances),
            "mean_clean_probability": float(np.mean(self.probabilities))
            if self.probabilities
            else None,
        }


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    """Mean, median, 90 % quantile and maximum."""
    if not values:
        return None
    median, high, top = np.quantile(values, (0.5, 0.9, 1.0)).tolist()
    return {"mean": float(np.mean(values)), "p50": median, "p90": high, "max": top}
