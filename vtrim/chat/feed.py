"""Conversations to a stream of reply tokens for counting, by the cheapest path that is exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Literal

import numpy as np

from vtrim.chat.conversation import Conversation, conversation_key, is_heldout
from vtrim.chat.encode import fast_backend
from vtrim.chat.encoders import Ids, TokenizersEncoder
from vtrim.chat.fast import Counted, FastReplies, Reply, ReplySample
from vtrim.chat.frames import Frames
from vtrim.chat.gigatoken import REMEDY, GigatokenEncoder, NotProved
from vtrim.chat.render import Renderer
from vtrim.chat.words import Words

__all__ = ["Counted", "EncoderChoice", "FastPathDiffers", "ReplyFeed", "ReplySample"]

EncoderChoice = Literal["auto", "tokenizers", "gigatoken"]

CHECK_FIRST = 64
CHECK_EVERY = 500
_CHECK_SIZE = 200_000  # characters; the full render of a huge row costs hundreds of bytes a token
# Characters of replies after which loading gigatoken (0.5 to 1 s) pays.
_GIGATOKEN_FROM = 4_000_000
# Sources are told apart up to here: twice as many as are ever shown.
_MAX_SOURCES = 64


class FastPathDiffers(Exception):  # noqa: N818 - an outcome that the caller handles
    """A fast path gave other counts than the full render: count again without it.

    encoder: what had encoded; ``gigatoken``: count again with ``tokenizers``, then by full renders.
    """

    def __init__(self, where: str, encoder: str) -> None:
        super().__init__(where, encoder)
        self.where = where
        self.encoder = encoder

    def __str__(self) -> str:
        return self.where

    def __reduce__(self) -> tuple[type[FastPathDiffers], tuple[str, str]]:
        """How another process hears of it."""
        return type(self), (str(self), self.encoder)


class ReplyFeed:
    """Feeds reply tokens to a counter and tallies the rows they come from.

    Most conversations need no rendering (see ``frames``). The first 64 of them and then one in 500
    are counted both ways. full: render and encode every conversation; so does a length limit,
    which depends on the prompts. encoder: ``auto`` takes gigatoken for long data where it proves
    itself. sample: gets the reply ids of the held-out conversations that it wants.

    Raises:
        NotProved: ``gigatoken`` was asked for, and it cannot be used for this tokenizer.
    """

    def __init__(
        self,
        renderer: Renderer,
        *,
        full: bool = False,
        encoder: EncoderChoice = "auto",
        sample: ReplySample | None = None,
    ) -> None:
        self.renderer = renderer
        self.rows_used = 0
        self.rows_heldout = 0
        self.rows_fast = 0
        self.rows_checked = 0
        self.kinds: Counter[str] = Counter()
        self.encoder_note: str | None = None
        self._full = full or renderer.max_length is not None
        self._sample = sample
        self._sources: set[str | None] = set()
        self._backend = fast_backend(renderer.tokenizer)
        self._checker = Renderer(renderer.tokenizer, last_turn_only=renderer.last_turn_only)
        self._check_until = CHECK_FIRST
        self._frames: Frames | None = None
        self._auto = encoder == "auto" and find_spec("gigatoken") is not None
        self._fast = self._start(encoder)

    @property
    def encoder(self) -> str:
        """The library that encodes."""
        return self._fast.encoder.name

    def feed(self, conversations: Iterable[Conversation]) -> Iterator[Counted]:
        """(ids, weights, heldout, source) of every reply, in no particular order.

        Raises:
            FastPathDiffers: a conversation counted both ways gave different counts, or gigatoken
                failed, so what was fed before it is not to be trusted.
        """
        try:
            yield from self._feed(conversations)
        except NotProved as error:
            raise FastPathDiffers(str(error), self.encoder) from error

    def _feed(self, conversations: Iterable[Conversation]) -> Iterator[Counted]:
        for conversation in conversations:
            self.kinds[conversation.kind] += 1
            replies = self._replies_of(conversation)
            if replies is None:
                yield from self._rendered(conversation)
                continue
            if self.rows_fast < self._check_until or self.rows_fast % CHECK_EVERY == 0:
                self._check(conversation, replies)
            heldout = is_heldout(conversation)
            self.rows_used += 1
            self.rows_fast += 1
            self.rows_heldout += heldout
            source = self._source_of(conversation)
            if heldout and self._wants(conversation):
                self._fast.add_sampled(replies, conversation_key(conversation), source)
            else:
                self._fast.add(replies, heldout, source)
            if self._fast.is_due:
                yield from self._fast.drain(self._sample)
            if self._auto and self._fast.characters > _GIGATOKEN_FROM:
                yield from self._upgrade()
        yield from self._drained()

    def _start(self, encoder: EncoderChoice) -> FastReplies:
        """The way to count that was asked for."""
        if self._full:
            return FastReplies(self._backend, TokenizersEncoder(self._backend), None)
        if encoder == "gigatoken":
            return FastReplies(self._backend, GigatokenEncoder(self._backend), None)
        words = Words.build(self._backend)
        return FastReplies(self._backend, TokenizersEncoder(self._backend), words)

    def _upgrade(self) -> Iterator[Counted]:
        """Goes on with gigatoken, if it can; what it counts is checked from the start again."""
        self._auto = False
        yield from self._drained()
        try:
            encoder = GigatokenEncoder(self._backend)
        except NotProved as error:
            self.encoder_note = f"{str(error).removesuffix(REMEDY)}Counted with tokenizers."
            return
        self._fast = FastReplies(self._backend, encoder, None)
        self._check_until = self.rows_fast + CHECK_FIRST

    def _drained(self) -> Iterator[Counted]:
        yield from self._fast.drain(self._sample)
        self.renderer.straddling += self._fast.straddling
        self._fast.straddling = 0

    def _rendered(self, conversation: Conversation) -> Iterator[Counted]:
        samples = self.renderer.samples(conversation)
        if not samples:
            return
        heldout = samples[0].heldout
        self.rows_used += 1
        self.rows_heldout += heldout
        if self._sample is not None and heldout and self._wants(conversation):
            ids = np.concatenate([sample.ids[sample.mask] for sample in samples])
            self._sample.add(conversation_key(conversation), ids)
        source = self._source_of(conversation)
        for sample in samples:
            yield sample.ids, sample.mask, heldout, source

    def _replies_of(self, conversation: Conversation) -> list[Reply] | None:
        """The conversation's replies in their frames; None without one or with an empty one."""
        if self._full or conversation.recorded is not None or conversation.text is not None:
            return None
        if self._frames is None:
            self._frames = Frames(
                self.renderer.template, self._backend, last_only=self.renderer.last_turn_only
            )
        frames = self._frames.of(conversation)
        if not frames:
            return None
        found = []
        for frame, reply in zip(frames, conversation.replies[-len(frames) :], strict=True):
            text = frame.trim(reply)
            if not text or text.isspace():  # an empty reply, which the renderer tallies
                return None
            found.append((frame, text))
        return found

    def _source_of(self, conversation: Conversation) -> str | None:
        """The row's source; none once there are too many to tell apart."""
        self._sources.add(conversation.source)
        return conversation.source if len(self._sources) <= _MAX_SOURCES else None

    def _wants(self, conversation: Conversation) -> bool:
        return self._sample is not None and self._sample.wants(conversation_key(conversation))

    def _check(self, conversation: Conversation, replies: list[Reply]) -> None:
        """Counts one conversation both ways, unless it is huge."""
        if sum(len(text) for _, text in replies) >= _CHECK_SIZE:
            return
        samples = self._checker.samples(conversation)  # none where the template refuses it
        slow: list[Ids] = [np.empty(0, np.int64), *(one.ids[one.mask] for one in samples)]
        alone = self._fast.fresh()
        alone.add(replies, heldout=False, source=None)
        fast = [
            ids if weights is None else np.repeat(ids, weights)
            for ids, weights, _, _ in alone.drain(None)
        ]
        self.rows_checked += 1
        if not np.array_equal(np.sort(np.concatenate(slow)), np.sort(np.concatenate(fast))):
            raise FastPathDiffers(str(conversation.origin), self.encoder)
