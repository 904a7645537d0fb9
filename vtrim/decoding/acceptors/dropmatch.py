"""DropMatch (arXiv:2603.03333): a drafted token stays if the target with units dropped could agree.

K copies of the target's final state, each with its own dropout mask, go through the target's own
head in one product. The rule is lossy: the output does not follow the target's law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from vtrim.decoding.acceptors.calibration import Calibration
from vtrim.decoding.acceptors.diagnostics import Diagnostics
from vtrim.decoding.acceptors.judging import Judging, Rules
from vtrim.decoding.acceptors.options import check_range
from vtrim.decoding.acceptors.rule import Spot
from vtrim.decoding.acceptors.walk import walk
from vtrim.decoding.protocol import Proposal, Verdict, Verification
from vtrim.decoding.sampling import Place, keep_masks
from vtrim.errors import OptionError

CRITERIA = ("full", "js", "naive", "majority")
CORRECTIONS = ("sample", "argmax", "centroid", "residual")
AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class DropMatch:
    """Lossy acceptance by Monte-Carlo dropout on the target's final state.

    heads: K; p_drop: share of units dropped, 0 is exact matching, ``auto`` is the most at which the
    heads' arg-max is the clean one at the rate ``target_agreement`` on the prompts' positions;
    criterion: ``js`` (the draft's law lies as close to the centroid of the heads' laws as the
    farthest head), ``majority`` (the token is the heads' unique most frequent arg-max), ``full``
    (js, else majority: Algorithm 1 of the paper) or ``naive`` (the token is some head's arg-max;
    always the rule of a single head); None: full for chains and naive for trees, as in the paper.
    correction: the token after a rejection: ``sample`` of the clean law, ``argmax`` of it,
    ``centroid`` (a sample of it) or ``residual`` (of p - q); at temperature 0 a sample is the
    arg-max. The token after a whole path is the target's own, whatever the correction.
    accept_clean_argmax: keep the target's own arg-max even where the criterion rejects it; at
    temperature 0 it goes before its siblings. min_centroid_prob: the criterion keeps no token that
    the centroid finds less likely. The heads' laws have the temperature of the draft's own and are
    unfiltered, as it is; a token that top_k or top_p rule out is neither kept nor a correction.
    diagnose: also note what costs whole passes over the vocabulary.
    """

    seed: int = 0
    heads: int = 5
    p_drop: float | str = 0.3
    target_agreement: float = 0.9
    criterion: str | None = None
    correction: str = "sample"
    accept_clean_argmax: bool = True
    min_centroid_prob: float = 0.0
    diagnose: bool = False
    diagnostics: Diagnostics = field(default_factory=Diagnostics, init=False, compare=False)
    calibration: Calibration = field(init=False, compare=False, repr=False)
    name: ClassVar[str] = "dropmatch"
    lossless: ClassVar[bool] = False
    greedy_only: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raises: OptionError when a value is out of range."""
        if self.heads < 1:
            raise OptionError(f"--heads {self.heads}: at least 1 is needed (the paper uses 5).")
        if isinstance(self.p_drop, str):
            _check_choice("--p-drop", self.p_drop, (AUTO, "a share from 0 to below 1"))
        elif not 0 <= self.p_drop < 1:
            raise OptionError(
                f"--p-drop {self.p_drop:g}: give 0 or more and below 1 (at 1 no unit is left), "
                f"or {AUTO}."
            )
        check_range("target_agreement", self.target_agreement, 0, 1)
        check_range("min_centroid_prob", self.min_centroid_prob, 0, 1)
        _check_choice("--criterion", self.criterion or CRITERIA[0], CRITERIA)
        _check_choice("--correction", self.correction, CORRECTIONS)
        object.__setattr__(self, "calibration", Calibration(self.target_agreement, self.seed))

    def begin(self, hidden: Tensor, head: Callable[[Tensor], Tensor], prompt: int) -> None:
        """Chooses p from the prompt's states where it is left open. hidden: [T, d]."""
        if self.p_drop == AUTO:
            self.calibration.begin(hidden, head, prompt)
            self.diagnostics.calibration = self.calibration.summary()

    def masks(self, place: Place, size: int, p_drop: float) -> Tensor:
        """[K, d] bool, True where a unit is kept, at a position."""
        return keep_masks(place, num_heads=self.heads, size=size, p_drop=p_drop)

    def accept(self, proposal: Proposal, view: Verification) -> Verdict:
        """Walks down the drafted tokens that stay, siblings in the drafter's order."""
        judging = Judging(self._rules(proposal, view.prompt), proposal, view)

        def judge(row: int, nodes: list[int]) -> tuple[int, str] | int:
            if not nodes:
                return judging.own_token(row)
            spot = Spot(proposal, view, row, nodes, self.seed)
            for node in self._order(nodes, judging, row):
                token = proposal.ids[node]
                reason = judging.reason(row, token)
                if reason is not None and spot.allows(token):
                    self.diagnostics.note(judging, spot, row, node, reason, self.diagnose)
                    return node, reason
            self.diagnostics.note(judging, spot, row, None, "rejected", self.diagnose)
            return judging.correct(spot, row)

        return walk(proposal, judge)

    def _order(self, nodes: list[int], judging: Judging, row: int) -> list[int]:
        """The siblings in the order they are judged in."""
        if len(nodes) == 1 or not self.accept_clean_argmax or judging.view.temperature > 0:
            return nodes
        clean, ids = judging.clean(row), judging.proposal.ids
        return sorted(nodes, key=lambda node: ids[node] != clean)

    def _rules(self, proposal: Proposal, prompt: int) -> Rules:
        p_drop = self.calibration.of(prompt) if isinstance(self.p_drop, str) else self.p_drop
        criterion = self.criterion or ("full" if proposal.parents is None else "naive")
        # One head is its own centroid and so has radius 0, as have heads without dropout: there
        # rounding would decide the JS rule, and membership is exact matching.
        if self.heads == 1 or p_drop == 0:
            criterion = "naive"
        return Rules(
            seed=self.seed,
            num_heads=self.heads,
            p_drop=p_drop,
            criterion=criterion,
            correction=self.correction,
            accept_clean_argmax=self.accept_clean_argmax,
            min_centroid_prob=self.min_centroid_prob,
            masks=self.masks,
        )


def _check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise OptionError(f"{option} {value}: unknown. Known: {', '.join(choices)}.")
