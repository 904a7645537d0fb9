"""The walk down a proposal: one judgement a token, the same for chains and trees."""

from __future__ import annotations

from collections.abc import Callable

from vtrim.decoding.protocol import ROOT, Proposal, Verdict

Judge = Callable[[int, list[int]], tuple[int, str] | int]
"""Judges the tokens behind a row: (row, their indices) -> (index kept, reason) or the next token.

``row`` is a row of the view; the list is empty at a leaf, where a token must be given.
"""


def walk(proposal: Proposal, judge: Judge) -> Verdict:
    """Follows kept tokens from the root until the judge gives the target's own token."""
    path: list[int] = []
    reasons: list[str] = []
    node = ROOT
    while True:
        answer = judge(node + 1, proposal.children.get(node, []))
        if isinstance(answer, int):
            return Verdict(tuple(path), answer, tuple(reasons))
        node, reason = answer
        path.append(node)
        reasons.append(reason)
