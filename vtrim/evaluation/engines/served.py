"""A serving engine's replies as generations, so that they are counted as local decoding's are."""

from __future__ import annotations

from dataclasses import dataclass

from vtrim.decoding.generation import Generation
from vtrim.evaluation.engines.reply import Batch, EngineReply


@dataclass(frozen=True, kw_only=True)
class ServedGeneration(Generation):
    """A generation of which an engine tells only sums.

    drafted and accepted are empty; tokens too where the engine tells no ids. num_rounds: 0 where
    it does not count them.
    """

    num_tokens: int
    num_rounds: int
    text: str | None = None

    @property
    def rounds(self) -> int:
        """Number of target forwards after the prefill, as far as the engine counts them."""
        return self.num_rounds

    @property
    def emitted(self) -> int:
        """Tokens that the rounds gave [tokens]: all but the prefill token."""
        return max(self.num_tokens - 1, 0)


def generations_of(batch: Batch) -> list[ServedGeneration]:
    """The generations in replies that were asked for together.

    Of several, each has an equal share of the time in which they were decoded; rounds that were
    counted for all of them are the first one's.
    """
    replies, counts = batch.replies, batch.counts
    share = None
    if len(replies) > 1:
        ends = [reply.prefill_seconds + reply.seconds for reply in replies]
        share = (max(ends) - min(reply.prefill_seconds for reply in replies)) / len(replies)
    counted = 0 if counts is None else counts.rounds
    return [
        _generation(reply, counted if index == 0 else 0, share)
        for index, reply in enumerate(replies)
    ]


def _generation(reply: EngineReply, counted: int, share: float | None) -> ServedGeneration:
    """One of them. counted: its rounds, where it tells none itself.

    Tokens that came at once with the first one have no time of their own: they are taken to have
    needed the others' mean. Where all came at once, the prompt's time is in theirs.
    """
    emitted, timed = max(reply.num_tokens - 1, 0), max(reply.num_tokens - reply.with_first, 0)
    prefill, seconds = reply.prefill_seconds, reply.seconds * emitted / max(timed, 1)
    if at_once(reply):
        prefill, seconds = 0.0, reply.prefill_seconds
    return ServedGeneration(
        tokens=reply.tokens or (),
        drafted=(),
        accepted=(),
        reasons={},
        off_argmax=0,
        seconds={"prefill": prefill, "other": seconds if share is None else share},
        finish_reason="stop" if reply.finish_reason == "stop" else "length",
        num_tokens=reply.num_tokens,
        num_rounds=counted if reply.rounds is None else reply.rounds,
        text=reply.text,
    )


def at_once(reply: EngineReply) -> bool:
    """Whether a reply of several tokens came in one piece, so that only its whole time is known."""
    return reply.num_tokens > 1 and reply.with_first >= reply.num_tokens
