"""Exact matching: a drafted token stays while it is the target's arg-max (temperature 0)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from vtrim.decoding.acceptors.walk import walk
from vtrim.decoding.protocol import Proposal, Verdict, Verification
from vtrim.decoding.sampling import arg_max
from vtrim.errors import OptionError


@dataclass(frozen=True, kw_only=True)
class Greedy:
    """Lossless at temperature 0: the output is the target's own greedy output."""

    name: ClassVar[str] = "greedy"
    lossless: ClassVar[bool] = True
    greedy_only: ClassVar[bool] = True

    def begin(self, hidden: Tensor, head: Callable[[Tensor], Tensor], prompt: int) -> None:
        """Nothing to prepare."""

    def accept(self, proposal: Proposal, view: Verification) -> Verdict:
        """Keeps the longest prefix of arg-maxes, then gives the next arg-max.

        Raises:
            OptionError: the temperature is not 0.
        """
        if view.temperature != 0:
            raise OptionError(f"greedy works at temperature 0 only, not at {view.temperature:g}.")
        return match_argmax(proposal, view)


def match_argmax(proposal: Proposal, view: Verification) -> Verdict:
    """The verdict of exact matching: the longest path of arg-maxes.

    A device is asked once, for all rows; on a CPU only the rows that the path reaches are read.
    """
    logits, rows = view.logits, None
    if logits.device.type != "cpu":
        rows = proposal.fetch(arg_max(logits))
    drafted = proposal.ids

    def judge(row: int, nodes: list[int]) -> tuple[int, str] | int:
        best = int(arg_max(logits[row])) if rows is None else rows[row]
        kept = next((node for node in nodes if drafted[node] == best), None)
        return best if kept is None else (kept, "argmax")

    return walk(proposal, judge)
