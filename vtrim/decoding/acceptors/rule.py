"""What the rules share: drafted siblings judged one after the other, then a token of the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from vtrim.decoding.acceptors.greedy import match_argmax
from vtrim.decoding.acceptors.walk import walk
from vtrim.decoding.protocol import Proposal, Verdict, Verification
from vtrim.decoding.sampling import Place, Purpose, arg_max, draw, law, uniform

Chances = Iterator[tuple[int, float, str]]
"""(node, chance that it is kept, why) a sibling; asking for the next means it was rejected."""


class Spot:
    """One row of the view and the tokens drafted right behind it."""

    def __init__(
        self, proposal: Proposal, view: Verification, row: int, nodes: list[int], seed: int
    ) -> None:
        self.proposal = proposal
        self.view = view
        self.nodes = nodes
        self.logits = view.logits[row]
        self.place: Place = (seed, view.prompt, view.position + proposal.row_depth(row))

    @cached_property
    def p(self) -> Tensor:
        """[V] the target's law, filters included; at temperature 0 that of temperature 1.

        A rule may put other weights of any sum in its place: the next token is drawn from them.
        """
        view = self.view
        return law(self.logits, view.temperature or 1.0, view.top_k, view.top_p).exp()

    @cached_property
    def best(self) -> int:
        """The target's arg-max."""
        return int(arg_max(self.logits))

    @property
    def drafted(self) -> Iterator[tuple[int, int]]:
        """(node, token) of each sibling, in the drafter's order."""
        return ((node, self.proposal.ids[node]) for node in self.nodes)

    @property
    def filtered(self) -> bool:
        """Whether top_k or top_p take tokens out of the target's law."""
        return self.view.top_k > 0 or self.view.top_p < 1

    def allows(self, token: int) -> bool:
        """Whether top_k and top_p leave the token in the target's law."""
        return not self.filtered or float(self.p[token]) > 0

    def next_token(self) -> int:
        """The token when no sibling is kept: a draw from ``p``, at temperature 0 the arg-max."""
        if self.view.temperature == 0:
            return self.best
        return int(draw(self.p, self.place, Purpose.TARGET))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule that gives each sibling a chance in turn and keeps the first that passes.

    At temperature 0 a sibling that is the target's arg-max goes before all others, so that a lossy
    rule departs from greedy decoding only where the draft has nothing better; a rule that is
    ``exact_at_0`` keeps nothing else. Tokens that top_k or top_p rule out are kept by no rule.
    """

    seed: int = 0
    greedy_only: ClassVar[bool] = False
    exact_at_0: ClassVar[bool] = False

    def begin(self, hidden: Tensor, head: Callable[[Tensor], Tensor], prompt: int) -> None:
        """Nothing to prepare."""

    def chances(self, spot: Spot) -> Chances:
        """The siblings of a spot in the drafter's order, each with its chance to be kept."""
        raise NotImplementedError

    def accept(self, proposal: Proposal, view: Verification) -> Verdict:
        """Walks down the kept tokens; one random number a sibling where chance decides."""
        if view.temperature == 0 and self.exact_at_0:
            return match_argmax(proposal, view)

        def judge(row: int, nodes: list[int]) -> tuple[int, str] | int:
            spot = Spot(proposal, view, row, nodes, self.seed)
            if view.temperature == 0:
                for node, token in spot.drafted:
                    if token == spot.best:
                        return node, "argmax"
            for index, (node, chance, reason) in enumerate(self.chances(spot)):
                if chance > 0 and uniform(spot.place, Purpose.ACCEPT, index) < chance:
                    return node, reason
            return spot.next_token()

        return walk(proposal, judge)
