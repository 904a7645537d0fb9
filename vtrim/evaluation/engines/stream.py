"""A streamed reply: its pieces are timed as they come and put together."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from vtrim.errors import InputError
from vtrim.evaluation.engines.reply import EngineReply

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What one event says; None where it says nothing of it.

    ids and text: new ones; num_tokens: of the reply so far; prompt_tokens: those that the server
    has read; rounds: so far; tokens_per_round: the engine's own mean.
    """

    ids: tuple[int, ...] | None = None
    text: str = ""
    num_tokens: int | None = None
    prompt_tokens: int | None = None
    rounds: int | None = None
    tokens_per_round: float | None = None
    finish_reason: str | None = None


def collect(pieces: Iterable[Piece], num_prompt_tokens: int, where: str) -> EngineReply:
    """The reply in a stream, which begins when it is asked for.

    Raises:
        InputError: the server has read another prompt, does not count its tokens, or stopped
            without saying why.
    """
    whole = _Whole()
    for piece in pieces:
        whole.take(piece)
    whole.check(num_prompt_tokens, where)
    return whole.reply()


class _Whole:
    """A reply that grows."""

    def __init__(self) -> None:
        self.started = self.first = self.last = time.perf_counter()
        self.ids: list[int] | None = None
        self.text = ""
        self.counted = self.with_first = 0
        self.told = Piece()

    def take(self, piece: Piece) -> None:
        """Adds a piece, and notes the time if it brought tokens."""
        before = self.counted
        if piece.ids is not None:
            self.ids = [*(self.ids or ()), *piece.ids]
        self.text += piece.text
        if piece.num_tokens is not None:
            self.counted = piece.num_tokens
        elif piece.ids is not None:
            self.counted = len(self.ids or ())
        if piece.ids or piece.text or (self.counted > before and piece.finish_reason is not None):
            self.last = time.perf_counter()
            if not self.with_first:
                self.first, self.with_first = self.last, max(self.counted, 1)
        self.told = _later(self.told, piece)

    def check(self, num_prompt_tokens: int, where: str) -> None:
        """Raises: InputError when the reply cannot be used."""
        told = self.told
        if told.finish_reason is None:
            raise InputError(f"{where}: the answer does not say why it ends: it is not whole.")
        if not self.counted:
            raise InputError(
                f"{where}: the server does not count the tokens of its answers (usage), so that "
                "nothing can be measured."
            )
        if told.prompt_tokens not in (None, num_prompt_tokens):
            raise InputError(
                f"{where}: {num_prompt_tokens} prompt tokens were sent and the server has read "
                f"{told.prompt_tokens}: it changes the prompts, so that its replies cannot be "
                "compared."
            )

    def reply(self) -> EngineReply:
        """The whole reply."""
        rounds, mean = self.told.rounds, self.told.tokens_per_round
        if rounds is None and mean:
            rounds = max(round(self.counted / mean), 1)
        return EngineReply(
            tokens=tuple(self.ids) if self.ids and len(self.ids) == self.counted else None,
            text=self.text or None,
            num_tokens=self.counted,
            with_first=self.with_first or 1,
            rounds=rounds,
            prefill_seconds=self.first - self.started,
            seconds=self.last - self.first,
            finish_reason=str(self.told.finish_reason),
        )


def _later(told: Piece, piece: Piece) -> Piece:
    """What was told last of each thing."""
    return Piece(
        prompt_tokens=_last(piece.prompt_tokens, told.prompt_tokens),
        rounds=_last(piece.rounds, told.rounds),
        tokens_per_round=_last(piece.tokens_per_round, told.tokens_per_round),
        finish_reason=_last(piece.finish_reason, told.finish_reason),
    )


def _last(new: T | None, old: T | None) -> T | None:
    return old if new is None else new
