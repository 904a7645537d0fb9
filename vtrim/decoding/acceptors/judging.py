"""One round of DropMatch: the dropout heads behind each judged position, and what they keep.

Shapes: R rows, K heads, V target vocabulary, k draft vocabulary, d hidden size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vtrim.decoding.acceptors.heads import Heads, compare_together, majority, masked_states
from vtrim.decoding.acceptors.rejection import residual
from vtrim.decoding.acceptors.rule import Spot
from vtrim.decoding.protocol import Proposal, Verification
from vtrim.decoding.sampling import Place, Purpose, arg_max, draw, target_token

MaskMaker = Callable[[Place, int, float], Tensor]
"""[K, d] bool masks from where they belong, d and p."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What decides a round: DropMatch's options with nothing left open.

    criterion: one of full, js, majority, naive; num_heads: K; the rest as in ``DropMatch``.
    """

    seed: int
    num_heads: int
    p_drop: float
    criterion: str
    correction: str
    accept_clean_argmax: bool
    min_centroid_prob: float
    masks: MaskMaker


class Judging:
    """The heads of a proposal's rows, computed as far as they are needed, and their verdicts."""

    def __init__(self, rules: Rules, proposal: Proposal, view: Verification) -> None:
        self.rules = rules
        self.proposal = proposal
        self.view = view
        self._known: dict[int, Heads] = {}
        self._clean: dict[int, int] = {}

    @property
    def _on_host(self) -> bool:
        return self.view.logits.device.type == "cpu"

    def clean(self, row: int) -> int:
        """The target's own arg-max at a row."""
        if row not in self._clean:
            if self._on_host:
                self._clean[row] = int(arg_max(self.view.logits[row]))
            else:
                every = self.proposal.fetch(arg_max(self.view.logits))
                self._clean.update(enumerate(every))
        return self._clean[row]

    def heads(self, row: int) -> Heads:
        """The dropout heads at a row."""
        if row not in self._known:
            self._measure(self._together(row))
        return self._known[row]

    def reason(self, row: int, token: int) -> str | None:
        """Why a drafted token stays; None if it does not."""
        reason, floor = self._criterion(row, token), self.rules.min_centroid_prob
        if reason is not None and floor > 0:
            likely = float(self.heads(row).log_centroid[token].exp()) >= floor
            reason = reason if likely else None
        if reason is None and self.rules.accept_clean_argmax and token == self.clean(row):
            return "clean"
        return reason

    def own_token(self, row: int) -> int:
        """The target's own token at a row."""
        if self.view.temperature == 0:
            return self.clean(row)
        return target_token(self.view, row, self.rules.seed, self.proposal.row_depth(row))

    def correct(self, spot: Spot, row: int) -> int:
        """The token where no drafted one stays; the paper does not name it."""
        correction, greedy = self.rules.correction, self.view.temperature == 0
        if correction == "argmax" or (greedy and correction != "centroid"):
            return self.clean(row)
        if correction == "sample":
            return self.own_token(row)
        weights = self.correction_weights(spot, row)
        return int(arg_max(weights) if greedy else draw(weights, spot.place, Purpose.TARGET))

    def correction_weights(self, spot: Spot, row: int) -> Tensor:
        """[V] what the token after a rejection is drawn from, none that top_k or top_p rule out.

        The heads know no filters: of their centroid what the target's law has stays, and where
        that is nothing, the target's law stands in.
        """
        if self.rules.correction == "argmax":
            weights = torch.zeros_like(spot.p)
            weights[self.clean(row)] = 1.0
            return weights
        if self.rules.correction == "centroid":
            centroid = self.heads(row).log_centroid.exp()
            if not spot.filtered:
                return centroid
            inside = centroid * (spot.p > 0)
            return torch.where(inside.sum() > 0, inside, spot.p)
        rest = spot.p
        if self.rules.correction == "residual":
            for node in spot.nodes:
                rest = residual(rest / rest.sum(), self.proposal, node)
        return rest

    def _criterion(self, row: int, token: int) -> str | None:
        """Why the criterion alone keeps a token; None if it does not.

        Algorithm 1 asks for JS first and the majority then; it keeps what passes either, so the
        cheaper test comes first and JS is left for the tokens that need it.
        """
        criterion, best = self.rules.criterion, self.heads(row).best
        if criterion == "naive":  # eq. 4
            return "naive" if token in best else None
        if criterion != "js" and token == majority(best):  # eq. 7
            return "majority"
        return "js" if criterion != "majority" and self.near(row) else None

    def near(self, row: int) -> bool:
        """Whether the draft's law is as near to the centroid as the farthest head's (eqs. 5, 6)."""
        heads = self.heads(row)
        if not self._on_host and "radii" not in vars(heads):
            compare_together(list(self._known.values()), self._logits)
        return heads.distance <= max(heads.radii)

    def _together(self, row: int) -> list[int]:
        """The rows whose heads go through the head with this row's, in one product.

        A product reads the head's weights once, so a few more rows are cheap and another product
        is not. A device takes every judged row. On a CPU the rows down to the first one where no
        drafted token is the target's own arg-max come first: there most walks end. Behind it a
        chain takes all that is left, a tree the next such rows.
        """
        children = self.proposal.children
        if not self._on_host:
            return [node + 1 for node in children]
        if self._known and self.proposal.parents is None:
            return list(range(row, self.proposal.size))
        rows = [row]
        while True:
            clean = self.clean(rows[-1])
            drafted = [n for n in children[rows[-1] - 1] if self.proposal.ids[n] == clean]
            if not drafted or drafted[0] not in children:
                return rows
            rows.append(drafted[0] + 1)

    def _measure(self, rows: list[int]) -> None:
        logits = self._head_logits(rows)
        laws, ids = self.proposal.log_q_soft, self.proposal.vocab_ids
        for row, one in zip(rows, logits, strict=True):
            node = self.proposal.children[row - 1][0]  # siblings are drawn from one law
            self._known[row] = Heads(one, self.view.temperature, laws[node], ids)
        if not self._on_host:
            self._fetch([self._known[row] for row in rows], logits)

    def _fetch(self, heads: list[Heads], logits: Tensor) -> None:
        """Brings a round's arg-maxes from a device at once."""
        best = arg_max(logits)
        numbers = self.proposal.fetch(torch.cat((arg_max(self.view.logits), best.flatten())))
        count = self.view.logits.shape[0]
        self._clean.update(enumerate(numbers[:count]))
        for index, one in enumerate(heads):
            first = count + index * self.rules.num_heads
            vars(one)["best"] = numbers[first : first + self.rules.num_heads]
        self._logits = logits

    def _head_logits(self, rows: list[int]) -> Tensor:
        """[R, K, V] logits of the masked copies of rows (arXiv:2603.03333, eqs. 1-3).

        Siblings' rows stand at one position and share its masks. Without dropout all heads are the
        clean one.
        """
        rules, view = self.rules, self.view
        if rules.p_drop == 0:
            return view.logits[rows, None].expand(-1, rules.num_heads, -1)
        depths = [self.proposal.row_depth(row) for row in rows]
        masks = {
            depth: rules.masks(
                (rules.seed, view.prompt, view.position + depth), view.hidden.shape[1], rules.p_drop
            )
            for depth in set(depths)
        }
        states = masked_states(
            view.hidden[rows], torch.stack([masks[depth] for depth in depths]), rules.p_drop
        )
        return view.head(states.flatten(0, 1)).reshape(len(rows), rules.num_heads, -1)
