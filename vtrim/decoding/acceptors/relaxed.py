"""Relaxed acceptance (TensorRT-LLM): the token is among the best and not far below the best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vtrim.decoding.acceptors.options import check_range
from vtrim.decoding.acceptors.rule import Chances, Rule, Spot


@dataclass(frozen=True, kw_only=True)
class Relaxed(Rule):
    """Keeps x if fewer than top_n tokens are likelier and p(x) >= max p - delta.

    That is the rule of TensorRT-LLM's relaxed acceptance (no paper), there for the thinking phase
    of a reply only, here for all of it. p has the temperature of decoding; when decoding greedily
    it is 1, as a one-hot law would leave exact matching. After a rejection, as after a whole path,
    the token is the target's own: its arg-max at temperature 0, above it a draw from p. In a tree
    the first sibling that passes is followed, at temperature 0 the arg-max before the others.
    """

    top_n: int = 10
    delta: float = 0.6
    name: ClassVar[str] = "relaxed"
    lossless: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raises: OptionError when a value is out of range."""
        check_range("top_n", self.top_n, 1)
        check_range("delta", self.delta, 0, 1)

    def chances(self, spot: Spot) -> Chances:
        """1 where both conditions hold, else 0."""
        for node, token in spot.drafted:
            p, top = float(spot.p[token]), float(spot.p.amax())
            near = p > 0 and p >= top - self.delta
            kept = near and int((spot.p > p).sum()) < self.top_n
            yield node, float(kept), "relaxed" if p < top else "argmax"
