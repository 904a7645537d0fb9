"""Conversations to a stream of reply tokens for counting, by the cheapest path that is exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from vtrim.chat.conversation import Conversation, is_heldout
from vtrim.chat.encode import encode, fast_backend
from vtrim.chat.frames import Frame, Frames
from vtrim.chat.pretokens import PretokenCounter
from vtrim.chat.render import Renderer

Ids = npt.NDArray[np.int64]
# (ids, how often each counts or True on reply tokens or None for all, held out)
Counted = tuple[Ids, Ids | npt.NDArray[np.bool_] | None, bool]

CHECK_FIRST = 64
CHECK_EVERY = 500
_BATCH = 1000
_MAX_PIECES = 200_000


class FastPathDiffers(Exception):  # noqa: N818 - an outcome that the caller handles
    """The fast path gave other counts than the full render: count again without it."""


class ReplyFeed:
    """Feeds reply tokens to a counter and tallies the rows they come from.

    full: render and encode whole conversations only.
    """

    def __init__(self, renderer: Renderer, *, full: bool = False) -> None:
        self.renderer = renderer
        self.rows_used = 0
        self.rows_fast = 0
        self.rows_heldout = 0
        self.kinds: Counter[str] = Counter()
        self._full = full or renderer.max_length is not None
        self._fast: FastReplies | None = None

    def feed(self, conversations: Iterable[Conversation]) -> Iterator[Counted]:
        """(ids, weights, heldout) of every reply, in no particular order.

        Raises:
            FastPathDiffers: a conversation counted both ways gave different counts. What was fed
                before is not to be trusted.
        """
        for number, conversation in enumerate(conversations):
            self.kinds[conversation.kind] += 1
            frames = None if self._full else self._frames(conversation)
            if frames is None or self._fast is None:
                yield from self._rendered(conversation)
                continue
            if number < CHECK_FIRST or number % CHECK_EVERY == 0:
                self._check(conversation, frames)
            heldout = is_heldout(conversation)
            self._fast.add(conversation, frames, heldout)
            self.rows_used += 1
            self.rows_fast += 1
            self.rows_heldout += heldout
            yield from self._fast.drain()
        if self._fast is not None:
            yield from self._fast.drain(everything=True)
            self.renderer.straddling += self._fast.straddling

    def _rendered(self, conversation: Conversation) -> Iterator[Counted]:
        samples = self.renderer.samples(conversation)
        if samples:
            self.rows_used += 1
            self.rows_heldout += samples[0].heldout
        for sample in samples:
            yield sample.ids, sample.mask, sample.heldout

    def _frames(self, conversation: Conversation) -> list[Frame] | None:
        """The conversation's frames, unless it has no reply or an empty one."""
        if conversation.recorded is not None:
            return None
        if self._fast is None:
            self._fast = FastReplies(self.renderer)
        frames = self._fast.frames.of(conversation)
        if not frames:
            return None
        replies = conversation.replies
        if not all(frame.trim(reply) for frame, reply in zip(frames, replies, strict=True)):
            return None
        return frames

    def _check(self, conversation: Conversation, frames: list[Frame]) -> None:
        """Counts one conversation both ways."""
        renderer = Renderer(self.renderer.tokenizer)
        slow: Counter[int] = Counter()
        for sample in renderer.samples(conversation):
            slow.update(sample.ids[sample.mask].tolist())
        assert self._fast is not None
        fast = self._fast.alone(conversation, frames)
        if slow != fast:
            raise FastPathDiffers(str(conversation.origin))
