"""DropMatch (arXiv:2603.03333): a drafted token stays if the target with units dropped could agree.

K copies of the target's final state, each with its own dropout mask, go through the target's own
head in one product. The rule is lossy: the output does not follow the target's law.
Shapes: L drafted tokens, K heads, V target vocabulary, k draft vocabulary, d hidden size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from vtrim.decoding.acceptors.diagnostics import Diagnostics
from vtrim.decoding.acceptors.heads import Heads
from vtrim.decoding.acceptors.rejection import residual
from vtrim.decoding.protocol import Proposal, Verdict, Verification
from vtrim.decoding.sampling import Purpose, draw, keep_masks, law, target_token
from vtrim.errors import OptionError

CRITERIA = ("full", "js", "naive", "majority")
CORRECTIONS = ("sample", "argmax", "centroid", "residual")


@dataclass(frozen=True, kw_only=True)
class DropMatch:
    """Lossy acceptance by Monte-Carlo dropout on the target's final state.

    heads: K; p_drop: share of units dropped, 0 is exact matching; criterion: ``js`` (the draft's
    law lies as close to the centroid of the heads' laws as the farthest head), ``majority`` (the
    token is the heads' unique most frequent arg-max), ``full`` (js, else majority: Algorithm 1 of
    the paper) or ``naive`` (the token is some head's arg-max; always the rule of a single head).
    correction: the token after a rejection: ``sample`` of the clean law, ``argmax`` of it,
    ``centroid`` (a sample of it) or ``residual`` (of p - q); at temperature 0 a sample is the
    arg-max. The token after a whole chain is the target's own, whatever the correction.
    accept_clean_argmax: keep the target's own arg-max even where the criterion rejects it.
    min_centroid_prob: the criterion keeps no token that the centroid finds less likely.
    """

    seed: int = 0
    heads: int = 5
    p_drop: float = 0.3
    criterion: str = "full"
    correction: str = "sample"
    accept_clean_argmax: bool = True
    min_centroid_prob: float = 0.0
    diagnostics: Diagnostics = field(default_factory=Diagnostics, init=False, compare=False)
    name: ClassVar[str] = "dropmatch"
    lossless: ClassVar[bool] = False
    greedy_only: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raises: OptionError when a value is out of range."""
        if self.heads < 1:
            raise OptionError(f"heads={self.heads} must be at least 1 (the paper uses 5).")
        if not 0 <= self.p_drop < 1:
            raise OptionError(
                f"p_drop={self.p_drop:g} must be at least 0 and below 1: at 1 no unit is left."
            )
        if not 0 <= self.min_centroid_prob <= 1:
            raise OptionError(
                f"min_centroid_prob={self.min_centroid_prob:g} must lie between 0 and 1."
            )
        _check_choice("criterion", self.criterion, CRITERIA)
        _check_choice("correction", self.correction, CORRECTIONS)

    def begin(self, hidden: Tensor, head: Callable[[Tensor], Tensor], prompt: int) -> None:
        """Nothing to prepare."""

    def masks(self, view: Verification, row: int) -> Tensor:
        """[K, d] bool, True where a unit is kept, at the position that a row judges."""
        return keep_masks(
            (self.seed, view.prompt, view.position + row),
            num_heads=self.heads,
            size=view.hidden.shape[-1],
            p_drop=self.p_drop,
        )

    def accept(self, proposal: Proposal, view: Verification) -> Verdict:
        """Judges the chain up to its first rejected token."""
        drafted = proposal.tokens.tolist()
        length = len(drafted)
        clean = view.logits[:length].float().argmax(-1).tolist()
        logits = self._head_logits(view, length)
        reasons: list[str] = []
        for row, token in enumerate(drafted):
            heads = Heads(logits[row], view.temperature)
            self.diagnostics.add_heads(heads.best, clean[row])
            reason = self._criterion(heads, proposal, row, token)
            if reason is None and self.accept_clean_argmax and token == clean[row]:
                reason = "clean"
            if reason is None:
                token = self._correct(heads, proposal, view, row)
                return Verdict(tuple(range(row)), token, tuple(reasons))
            self.diagnostics.add_accepted(view.logits[row], view.temperature, token)
            reasons.append(reason)
        token = target_token(view, length, self.seed)
        return Verdict(tuple(range(length)), token, tuple(reasons))

    def _head_logits(self, view: Verification, length: int) -> Tensor:
        """[L, K, V] logits of the masked copies of rows 0..L-1, in one product (eqs. 1-3).

        Without dropout all heads are the clean one.
        """
        if self.p_drop == 0 or length == 0:
            return view.logits[:length, None].expand(-1, self.heads, -1)
        masks = torch.stack([self.masks(view, row) for row in range(length)])
        hidden = view.hidden[:length, None]
        scale = 1 / (1 - self.p_drop)
        states = (hidden.float() * masks.to(hidden.device) * scale).to(hidden.dtype)
        return view.head(states.flatten(0, 1)).reshape(length, self.heads, -1)

    def _criterion(self, heads: Heads, proposal: Proposal, row: int, token: int) -> str | None:
        """Why the criterion keeps a drafted token; None if it does not."""
        reason = self._match(heads, proposal, row, token)
        if reason is None or self.min_centroid_prob == 0:
            return reason
        likely = float(heads.log_centroid[token].exp()) >= self.min_centroid_prob
        return reason if likely else None

    def _match(self, heads: Heads, proposal: Proposal, row: int, token: int) -> str | None:
        # One head is its own centroid and so has radius 0, as have heads without dropout: there
        # rounding would decide the JS rule, and membership is exact matching.
        if self.criterion == "naive" or self.heads == 1 or self.p_drop == 0:
            return "naive" if token in heads.best else None
        if self.criterion in ("full", "js"):  # eqs. 5 and 6
            radius = heads.radius()
            distance = heads.distance(proposal.log_q_soft[row], proposal.vocab_ids)
            self.diagnostics.add_distances(radius, distance)
            if distance <= radius:
                return "js"
        if self.criterion in ("full", "majority") and token == heads.majority():  # eq. 7
            return "majority"
        return None

    def _correct(self, heads: Heads, proposal: Proposal, view: Verification, row: int) -> int:
        """The token after the rejection of a row's token; the paper does not name it."""
        if self.correction == "argmax":
            return int(view.logits[row].float().argmax())
        if self.correction == "centroid" and view.temperature == 0:
            return int(heads.log_centroid.argmax())
        if self.correction == "sample" or view.temperature == 0:
            return target_token(view, row, self.seed)
        if self.correction == "centroid":
            weights = heads.log_centroid.exp()
        else:
            p = law(view.logits[row], view.temperature, view.top_k, view.top_p).exp()
            weights = residual(p, proposal, row)
        place = (self.seed, view.prompt, view.position + row)
        return int(draw(weights, place, Purpose.TARGET))


def _check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise OptionError(f"{option}='{value}' is unknown. Known: {', '.join(choices)}.")
