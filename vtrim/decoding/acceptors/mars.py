"""MARS (arXiv:2601.15498): the runner-up stays where the target hardly prefers its first choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vtrim.decoding.acceptors.options import check_range
from vtrim.decoding.acceptors.rule import Chances, Rule, Spot


@dataclass(frozen=True, kw_only=True)
class Mars(Rule):
    """Keeps the arg-max, and the second token where z2 / z1 > theta with z1 > 0.

    z are the target's logits, whose ratio no temperature changes (a common shift would, so theta
    does not carry over from one model to another). The paper gives the arg-max after a rejection;
    so it is here at temperature 0. Above it that would make all output greedy, so the token after a
    rejection or a whole path is a draw from p. In a tree the first sibling that passes is followed,
    at temperature 0 the arg-max before the runner-up.
    """

    theta: float = 0.9
    name: ClassVar[str] = "mars"
    lossless: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raises: OptionError when a value is out of range."""
        check_range("theta", self.theta, 0, 1)

    def chances(self, spot: Spot) -> Chances:
        """1 for the arg-max and a close runner-up, else 0."""
        for node, token in spot.drafted:
            if token == spot.best:
                yield node, 1.0, "argmax"
            else:
                yield node, float(self._close_second(spot, token)), "second"

    def _close_second(self, spot: Spot, token: int) -> bool:
        best, own = float(spot.logits[spot.best]), float(spot.logits[token])
        if best <= 0 or own / best <= self.theta or int((spot.logits > own).sum()) > 1:
            return False
        return spot.allows(token)
