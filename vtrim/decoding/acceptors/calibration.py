"""``--p-drop auto``: as much dropout as still lets the heads say what the target says.

The paper's 0.3 fits a 70B, whose heads then agree at nearly all positions; a small target's would
not, and DropMatch would keep almost anything. So p is the largest, up to the paper's, at which the
heads' arg-max is the clean one at a target rate, over the last positions of the first prompts. No
training and no data: the prompts' own states after their prefill, and a few head products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vtrim.decoding.acceptors.heads import masked_states
from vtrim.decoding.sampling import Place, arg_max, keep_masks
from vtrim.errors import OptionError

POSITIONS = 64
"""Prompt positions that p is chosen from: the last of those ``begin`` is given, as the text next to
the reply is likest to it."""
LEAST, MOST = 0.001, 0.3
"""The smallest p tried; the paper's, which is never exceeded."""
VOTES = 128
"""Heads that are asked, at least: 2 at each of 64 positions, more at each where there are fewer."""
STEPS = 5
"""Bisections of log p between the two: to within a fifth of p."""


@dataclass
class Calibration:
    """The noise level chosen so far, and the positions it was chosen from.

    Each prompt adds positions until there are ``POSITIONS``; then p stays. A prompt keeps the p of
    its own beginning, so a reply depends on the prompts before it, never on those decoded with it.
    One that comes again (told by its index) adds what is new behind its old length, and keeps its p
    where nothing is. p_drop, agreement: the p chosen last and the share of heads at the clean
    arg-max there, over the positions; of_prompt: each prompt's own p.
    """

    target: float
    seed: int
    p_drop: float | None = None
    agreement: float | None = None
    positions: int = 0
    of_prompt: dict[int, float] = field(default_factory=dict)
    _lengths: dict[int, int] = field(default_factory=dict)
    _hidden: list[Tensor] = field(default_factory=list)
    _places: list[Place] = field(default_factory=list)

    def begin(self, hidden: Tensor, head: Callable[[Tensor], Tensor], prompt: int) -> None:
        """Takes in a prompt's positions while they are wanted. hidden: [T, d] its states.

        Costs 8 head products over at most 3 * 64 rows, and only while positions are wanted.
        """
        length, known = hidden.shape[0], self._lengths.get(prompt, -1)
        if length <= known:
            return
        self._lengths[prompt] = length
        missing = POSITIONS - self.positions
        if missing > 0 and length > 0:
            first = max(0, known, length - missing)
            self._hidden.append(hidden[first:])
            # Row i judges position i + 1; replies draw their masks at later positions only.
            self._places += [(self.seed, prompt, at + 1) for at in range(first, length)]
            self.positions = len(self._places)
            self.p_drop, self.agreement = self._choose(head)
        if self.positions >= POSITIONS:
            self._hidden.clear()
            self._places.clear()
        self.of_prompt[prompt] = self.p_drop or 0.0

    def of(self, prompt: int) -> float:
        """The p of a prompt.

        Raises:
            OptionError: the acceptor was not told of the prompt.
        """
        if prompt not in self.of_prompt:
            raise OptionError(
                f"--p-drop auto: prompt {prompt} is not known; begin() must see its states first."
            )
        return self.of_prompt[prompt]

    def summary(self) -> dict[str, Any]:
        """What was chosen last, from how much, the agreement asked for and reached, all p given."""
        given = self.of_prompt.values()
        return {
            "p_drop": self.p_drop,
            "positions": self.positions,
            "agreement": self.agreement,
            "target_agreement": self.target,
            "p_drop_range": [min(given), max(given)] if given else None,
        }

    def _choose(self, head: Callable[[Tensor], Tensor]) -> tuple[float, float]:
        """The largest p that reaches the target, to within the last bisection; its agreement.

        The draws are the same for every p, so that agreement falls as p grows, up to rounding. 0,
        exact matching, where even the least noise is too much.
        """
        hidden = torch.cat(self._hidden)
        clean = arg_max(head(hidden))
        heads = -(-VOTES // self.positions)

        def agreement(p_drop: float) -> float:
            masks = [
                keep_masks(place, num_heads=heads, size=hidden.shape[1], p_drop=p_drop)
                for place in self._places
            ]
            states = masked_states(hidden, torch.stack(masks), p_drop)
            best = arg_max(head(states.flatten(0, 1))).reshape(-1, heads)
            return float((best == clean[:, None]).float().mean())

        most = agreement(MOST)
        if most >= self.target:
            return MOST, most
        low, high, reached = LEAST, MOST, agreement(LEAST)
        if reached < self.target:
            return 0.0, 1.0
        for _ in range(STEPS):
            middle = float(f"{(low * high) ** 0.5:.3g}")
            found = agreement(middle)
            if found >= self.target:
                low, reached = middle, found
            else:
                high = middle
        return low, reached
