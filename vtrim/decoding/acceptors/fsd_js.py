"""Fuzzy speculative decoding by JS divergence (arXiv:2502.20704): near laws keep the token."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vtrim.decoding.acceptors.divergence import js_trimmed
from vtrim.decoding.acceptors.options import check_range
from vtrim.decoding.acceptors.rule import Chances, Rule, Spot
from vtrim.decoding.sampling import law


@dataclass(frozen=True, kw_only=True)
class FsdJs(Rule):
    """Keeps x if JS(q, p) <= threshold [nats]; x itself plays no part.

    q is the draft's law scattered to the whole vocabulary, p the target's, both unfiltered and at
    the temperature of decoding, 1 when greedy. JS is the standard one. After a rejection, as after
    a whole path, the token is drawn from p (not from a residual), at temperature 0 its arg-max. A
    chain that is sampled from q stays near p; siblings of a tree share one q, so the first of them,
    the draft's favourite, stands for all: at a temperature above 0 that leans to it. At
    temperature 0 a sibling that is the target's arg-max is kept whatever the laws.
    """

    threshold: float
    name: ClassVar[str] = "fsd-js"
    lossless: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raises: OptionError when a value is out of range."""
        check_range("threshold", self.threshold, 0, math.log(2), hint="JS is never above ln 2")

    def chances(self, spot: Spot) -> Chances:
        """1 where the laws are near, else 0."""
        laws = spot.proposal.log_q_soft
        judged: Tensor | None = None  # siblings of one law share one divergence
        near = False
        for node, token in spot.drafted:
            if judged is None or not torch.equal(laws[node], judged):
                judged = laws[node]
                log_p = law(spot.logits, spot.view.temperature or 1.0)
                near = float(js_trimmed(judged, log_p, spot.proposal.vocab_ids)) <= self.threshold
            yield node, float(near and spot.allows(token)), "js"
