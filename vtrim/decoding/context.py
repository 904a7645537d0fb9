"""How many positions a sequence may take, and what sets that limit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vtrim.decoding.protocol import Drafter
from vtrim.errors import InputError
from vtrim.models.target import Target


@dataclass(frozen=True)
class Context:
    """length: positions [tokens]; words: the limit as a clause; note: what a user is told of it."""

    length: int = sys.maxsize
    words: str = "no model limits it"
    note: str | None = None

    def check(self, num_prompt_tokens: int) -> None:
        """Refuses a prompt that leaves no room for a reply.

        Raises:
            InputError: says whose positions end.
        """
        if num_prompt_tokens >= self.length:
            raise InputError(
                f"the prompt has {num_prompt_tokens} tokens; {self.words}, and the reply needs "
                "one. Shorten the prompt."
            )


def context_of(target: Target, drafter: Drafter | None) -> Context:
    """The shortest of what target and drafter were made for."""
    limits = [Context()]
    positions = getattr(target.config, "max_position_embeddings", None)
    if positions is not None:
        limits.append(Context(int(positions), f"the target has {positions} positions"))
    switch = _longrope_switch(target.config)
    if switch is not None:
        limits.append(_before_switch(switch, target.name))
    if drafter is not None:
        length = drafter.context_length
        limits.append(Context(length, f"the draft has {length} positions, fewer than the target"))
    return min(limits, key=lambda limit: limit.length)


def _longrope_switch(config: Any) -> int | None:
    """Positions after which a forward turns all its rows by longrope's other angles."""
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = [rope, *(value for value in rope.values() if isinstance(value, Mapping))]
    starts = [
        int(kind["original_max_position_embeddings"])
        for kind in kinds
        if kind.get("rope_type") == "longrope"
    ]
    return min(starts, default=None)


def _before_switch(length: int, name: str) -> Context:
    """The angles of a row would depend on the longest row beside it: on what is drafted, batched.

    Keys that are cached would keep the angles they had.
    """
    return Context(
        length,
        f"the target keeps its rotary angles for {length} positions only (rope_type longrope, "
        "original_max_position_embeddings)",
        f"{name}: replies end at {length:,} tokens, prompt included: beyond, longrope changes the "
        "angles of all rows of a forward, and replies would depend on what is drafted and batched.",
    )
