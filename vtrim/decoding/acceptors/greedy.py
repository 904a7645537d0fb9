"""Exact matching: a drafted token stays while it is the target's arg-max (temperature 0)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vtrim.decoding.protocol import Proposal, Verdict, Verification
from vtrim.errors import OptionError


@dataclass(frozen=True, kw_only=True)
class Greedy:
    """Lossless at temperature 0: the output is the target's own greedy output."""

    name: ClassVar[str] = "greedy"
    lossless: ClassVar[bool] = True
    greedy_only: ClassVar[bool] = True

    def accept(self, proposal: Proposal, view: Verification) -> Verdict:
        """Keeps the longest prefix of arg-maxes, then gives the next arg-max.

        Raises:
            OptionError: the temperature is not 0.
        """
        if view.temperature != 0:
            raise OptionError(f"greedy works at temperature 0 only, not at {view.temperature:g}.")
        return match_argmax(proposal, view)


def match_argmax(proposal: Proposal, view: Verification) -> Verdict:
    """The verdict of exact matching."""
    best = view.logits.float().argmax(-1).tolist()  # arg-max over bf16 is slow on a CPU
    count = 0
    for token in proposal.tokens.tolist():
        if token != best[count]:
            break
        count += 1
    return Verdict(count, best[count], ("argmax",) * count)
