"""Conversations to a stream of reply tokens for counting, by the cheapest path that is exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from vtrim.chat.conversation import Conversation, is_heldout
from vtrim.chat.encode import fast_backend
from vtrim.chat.fast import FastReplies
from vtrim.chat.frames import Frame, Frames
from vtrim.chat.pretokens import PretokenCounter
from vtrim.chat.render import Renderer

Ids = npt.NDArray[np.int64]
# (ids, how often each counts or True on reply tokens or None for all, held out)
Counted = tuple[Ids, Ids | npt.NDArray[np.bool_] | None, bool]

CHECK_FIRST = 64
CHECK_EVERY = 500
_CHECK_SIZE = 200_000  # characters; the full render of a huge row costs hundreds of bytes a token


class FastPathDiffers(Exception):  # noqa: N818 - an outcome that the caller handles
    """The fast path gave other counts than the full render: count again without it."""


class ReplyFeed:
    """Feeds reply tokens to a counter and tallies the rows they come from.

    Most conversations need no rendering (see ``frames``). The first 64 of them and then one in 500
    are counted both ways. full: render and encode every conversation; so does a length limit,
    which depends on the prompts.
    """

    def __init__(self, renderer: Renderer, *, full: bool = False) -> None:
        self.renderer = renderer
        self.rows_used = 0
        self.rows_heldout = 0
        self.rows_fast = 0
        self.rows_checked = 0
        self.kinds: Counter[str] = Counter()
        self._full = full or renderer.max_length is not None
        self._backend = fast_backend(renderer.tokenizer)
        self._pretokens = None if self._full else PretokenCounter.build(self._backend)
        self._frames: Frames | None = None
        self._fast = FastReplies(self._backend, self._pretokens)

    def feed(self, conversations: Iterable[Conversation]) -> Iterator[Counted]:
        """(ids, weights, heldout) of every reply, in no particular order.

        Raises:
            FastPathDiffers: a conversation counted both ways gave different counts, so what was
                fed before it is not to be trusted.
        """
        for conversation in conversations:
            self.kinds[conversation.kind] += 1
            frames = self._frames_of(conversation)
            if frames is None:
                yield from self._rendered(conversation)
                continue
            due = self.rows_fast < CHECK_FIRST or self.rows_fast % CHECK_EVERY == 0
            if due and sum(map(len, conversation.replies)) < _CHECK_SIZE:
                self._check(conversation, frames)
            heldout = is_heldout(conversation)
            self._fast.add(conversation, frames, heldout)
            self.rows_used += 1
            self.rows_fast += 1
            self.rows_heldout += heldout
            yield from self._fast.drain()
        yield from self._fast.drain(everything=True)
        self.renderer.straddling += self._fast.straddling

    def _rendered(self, conversation: Conversation) -> Iterator[Counted]:
        samples = self.renderer.samples(conversation)
        if samples:
            self.rows_used += 1
            self.rows_heldout += samples[0].heldout
        for sample in samples:
            yield sample.ids, sample.mask, sample.heldout

    def _frames_of(self, conversation: Conversation) -> list[Frame] | None:
        """The conversation's frames; None without a reply or with an empty one."""
        if self._full or conversation.recorded is not None:
            return None
        if self._frames is None:
            self._frames = Frames(self.renderer.template, self._backend)
        frames = self._frames.of(conversation)
        if not frames:
            return None
        replies = zip(frames, conversation.replies, strict=True)
        return frames if all(frame.trim(reply) for frame, reply in replies) else None

    def _check(self, conversation: Conversation, frames: list[Frame]) -> None:
        """Counts one conversation both ways."""
        slow: Counter[int] = Counter()
        for sample in Renderer(self.renderer.tokenizer).samples(conversation):
            slow.update(sample.ids[sample.mask].tolist())
        fast: Counter[int] = Counter()
        alone = FastReplies(self._backend, self._pretokens)
        alone.add(conversation, frames, heldout=False)
        for ids, weights, _ in alone.drain(everything=True):
            repeated = ids if weights is None else np.repeat(ids, weights)
            fast.update(repeated.tolist())
        self.rows_checked += 1
        if slow != fast:
            raise FastPathDiffers(str(conversation.origin))
