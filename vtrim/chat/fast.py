"""Reply tokens without rendering: only the segment that holds a reply is encoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from vtrim.chat.conversation import Conversation
from vtrim.chat.encode import encode
from vtrim.chat.frames import Frame
from vtrim.chat.pretokens import PretokenCounter

Ids = npt.NDArray[np.int64]
Weighted = tuple[Ids, Ids | None, bool]

_BATCH = 1000
_MAX_PIECES = 200_000


class FastReplies:
    """Collects replies and gives their ids in batches; memory stays flat.

    Replies go by distinct pre-token where ``pretokens`` can split them, else their segments are
    encoded in batches. straddling: tokens that cross the start of a reply.
    """

    def __init__(self, backend: Any, pretokens: PretokenCounter | None) -> None:
        self.straddling = 0
        self._backend = backend
        self._pretokens = pretokens
        self._pieces: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
        self._frames: Counter[tuple[Frame, bool]] = Counter()
        self._openings: dict[Frame, list[str] | None] = {}
        self._batch: list[tuple[Frame, str, bool]] = []

    def add(self, conversation: Conversation, frames: Sequence[Frame], heldout: bool) -> None:
        """Takes in the replies of a conversation."""
        for frame, reply in zip(frames, conversation.replies, strict=True):
            text = frame.trim(reply)
            if not self._add_pieces(frame, text, heldout):
                self._batch.append((frame, text, heldout))

    def drain(self, *, everything: bool = False) -> Iterator[Weighted]:
        """(ids, weights or None, heldout) of what is due, or of all that is left."""
        if everything or len(self._batch) >= _BATCH:
            yield from self._encoded()
        if everything or sum(map(len, self._pieces.values())) >= _MAX_PIECES:
            yield from self._counted()

    def _add_pieces(self, frame: Frame, text: str, heldout: bool) -> bool:
        """Counts the reply's pre-tokens, if they begin where the reply does."""
        if self._pretokens is None:
            return False
        if frame not in self._openings:
            self._openings[frame] = self._pretokens.split(frame.open_text)
        opening = self._openings[frame]
        pieces = self._pretokens.split(frame.open_text + text)
        if pieces is None or opening is None or pieces[: len(opening)] != opening:
            return False
        self._pieces[heldout].update(pieces)
        self._frames[frame, heldout] += 1
        return True

    def _counted(self) -> Iterator[Weighted]:
        """The pre-tokens of the replies, less what stands before them, and their fixed ids."""
        if self._pretokens is None:
            return
        for (frame, heldout), number in self._frames.items():
            for piece in self._openings[frame] or ():
                self._pieces[heldout][piece] -= number
            yield frame.fixed_ids, np.full(frame.fixed_ids.size, number, dtype=np.int64), heldout
        self._frames.clear()
        for heldout, pieces in self._pieces.items():
            ids, weights = self._pretokens.ids(pieces)
            yield ids, weights, heldout
            pieces.clear()

    def _encoded(self) -> Iterator[Weighted]:
        segments = [frame.segment(text) for frame, text, _ in self._batch]
        encodings = self._backend.encode_batch_fast(segments, add_special_tokens=False)
        parts: dict[bool, list[Sequence[int]]] = {False: [], True: []}
        for (frame, _, heldout), segment, encoding in zip(
            self._batch, segments, encodings, strict=True
        ):
            ids = encoding.ids
            cut = len(frame.lead_ids)
            if ids[:cut] == frame.lead_ids:
                parts[heldout].append(ids[cut:])
                continue
            exact = encode(self._backend, segment, [(len(frame.lead), len(segment))])
            self.straddling += exact.straddling
            parts[heldout].append(exact.ids[exact.mask].tolist())
        self._batch.clear()
        for heldout, lists in parts.items():
            total = sum(map(len, lists))
            yield np.fromiter(chain.from_iterable(lists), np.int64, total), None, heldout
