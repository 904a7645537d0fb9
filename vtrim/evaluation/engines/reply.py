"""What a serving engine says of replies: their tokens, their times, and its own counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from vtrim.decoding.generation import GenerationSettings


@dataclass(frozen=True, kw_only=True)
class EngineReply:
    """One reply.

    tokens: its ids, None where the engine tells none; text: None where only ids were told.
    with_first: tokens that came at once with the prefill, 1 unless the engine joined several.
    rounds: target forwards after the prefill, None where the engine does not count them. seconds:
    from the first token to the last [s]; prefill_seconds: up to the first token [s].
    """

    tokens: tuple[int, ...] | None
    text: str | None
    num_tokens: int
    with_first: int
    rounds: int | None
    prefill_seconds: float
    seconds: float
    finish_reason: str


@dataclass(frozen=True, kw_only=True)
class EngineCounts:
    """What an engine counted itself.

    rounds: its verifications of a draft; drafted and accepted: draft tokens; by_position[j]: drafts
    whose first j + 1 tokens were all accepted. Tokens accepted behind the end of a reply, which are
    thrown away, are counted by engines, not by vtrim.
    """

    rounds: int
    drafted: int
    accepted: int
    by_position: tuple[int, ...]

    def since(self, before: EngineCounts) -> EngineCounts:
        """What was counted after ``before``."""
        return self._with(before, -1)

    def __add__(self, other: EngineCounts) -> EngineCounts:
        return self._with(other, 1)

    def _with(self, other: EngineCounts, sign: int) -> EngineCounts:
        pairs = zip_longest(self.by_position, other.by_position, fillvalue=0)
        return EngineCounts(
            rounds=self.rounds + sign * other.rounds,
            drafted=self.drafted + sign * other.drafted,
            accepted=self.accepted + sign * other.accepted,
            by_position=tuple(a + sign * b for a, b in pairs),
        )


@dataclass(frozen=True)
class Batch:
    """The replies to prompts that were sent together, and what the engine counted meanwhile."""

    replies: tuple[EngineReply, ...]
    counts: EngineCounts | None = None


@dataclass(frozen=True, kw_only=True)
class EngineInfo:
    """Which engine it is.

    drafts: whether it decodes with a draft, None where it does not say. lossless: whether it
    verifies exactly, None where it does not say. own_length: how it defines its own acceptance
    length. context_length: positions, None where unknown.
    """

    name: str
    version: str | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    drafts: bool | None = None
    lossless: bool | None = None
    own_length: str | None = None
    context_length: int | None = None


class ServingEngine(Protocol):
    """An engine that is ready to decode."""

    @property
    def info(self) -> EngineInfo:
        """Which it is."""
        ...

    def decode(
        self, prompts: Sequence[Sequence[int]], settings: GenerationSettings, first: int
    ) -> Batch:
        """Replies to prompts sent together. first: index of the first of them.

        Raises:
            InputError: the engine fails, or its answer cannot be used.
        """
        ...


def longest(prompt: Sequence[int], settings: GenerationSettings, info: EngineInfo) -> int:
    """Tokens that a reply may have: as asked, where the engine has room for them."""
    if info.context_length is None:
        return settings.max_new_tokens
    return min(settings.max_new_tokens, info.context_length - len(prompt))
