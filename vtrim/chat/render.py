"""Conversations to token ids and reply masks, by one rule for every command.

The mask's order of preference: recorded ids; the template's ``{% generation %}`` marks; the render
boundary (see ``template``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from vtrim.chat.conversation import (
    Conversation,
    Message,
    Origin,
    Recorded,
    RowError,
    is_heldout,
)
from vtrim.chat.encode import encode, fast_backend
from vtrim.chat.skips import SkipLog
from vtrim.chat.template import ChatTemplate, TemplateRefusal


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sample:
    """One sequence to count or to train on. ids: [T]; mask: [T] True on reply tokens."""

    ids: npt.NDArray[np.int64]
    mask: npt.NDArray[np.bool_]
    heldout: bool
    source: str | None
    origin: Origin


class Renderer:
    """Renders and encodes conversations for one tokenizer.

    max_length: tokens kept of a sequence, cut on the right as training does. Rows that leave
    nothing to learn are noted in ``skipped``; ``straddling`` counts tokens that cross the start of
    a reply, ``cut_replies`` replies of which the limit left nothing in a row that is still used.
    """

    def __init__(
        self, tokenizer: Any, *, max_length: int | None = None, skipped: SkipLog | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.skipped = SkipLog() if skipped is None else skipped
        self.straddling = 0
        self.cut_replies = 0
        self._backend = fast_backend(tokenizer)

    @cached_property
    def template(self) -> ChatTemplate:
        """The tokenizer's chat template; recorded rows need none."""
        return ChatTemplate(self.tokenizer)

    def samples(self, conversation: Conversation) -> list[Sample]:
        """The samples of a conversation: none (noted in ``skipped``), one, or one a reply.

        There is one a reply where the template rewrites earlier turns, e.g. drops their
        ``<think>`` blocks: then each reply is learned after the prompt it will be served with.
        """
        try:
            sequences = self._sequences(conversation)
        except TemplateRefusal as error:
            self.skipped.add("template refusal", conversation.origin, str(error))
            return []
        except RowError as error:
            self.skipped.add(error.reason, conversation.origin, error.detail)
            return []
        if not any(mask.any() for _, mask in sequences):
            self.skipped.add("no reply", conversation.origin, "no assistant turn")
            return []
        kept = [(ids[: self.max_length], mask[: self.max_length]) for ids, mask in sequences]
        used = [(ids, mask) for ids, mask in kept if mask.any()]
        if not used:
            detail = f"no reply token within --max-length {self.max_length}"
            self.skipped.add("reply beyond max length", conversation.origin, detail)
            return []
        self.cut_replies += len(kept) - len(used)
        heldout = is_heldout(conversation)
        return [
            Sample(
                ids=ids,
                mask=mask,
                heldout=heldout,
                source=conversation.source,
                origin=conversation.origin,
            )
            for ids, mask in used
        ]

    def prompt_ids(
        self, messages: Iterable[Message], tools: Iterable[Any] | None = None
    ) -> list[int]:
        """Ids of a prompt: the messages and the generation prompt.

        Raises:
            TemplateRefusal: the template does not take these messages.
        """
        text = self.template.render(
            tuple(messages), tools=tuple(tools) if tools else None, generation_prompt=True
        )
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def encode_text(self, text: str) -> list[int]:
        """Ids of a raw text, with the special tokens that the tokenizer adds by itself (BOS)."""
        ids: list[int] = self._backend.encode(text, add_special_tokens=True).ids
        return ids

    def _sequences(
        self, conversation: Conversation
    ) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]]:
        if conversation.recorded is not None:
            self._check_recorded(conversation.recorded)
            return [(conversation.recorded.ids, conversation.recorded.mask)]
        sequences = []
        for rendered in self.template.samples(conversation):
            encoded = encode(self._backend, rendered.text, rendered.spans)
            self.straddling += encoded.straddling
            sequences.append((encoded.ids, encoded.mask))
        return sequences

    def _check_recorded(self, recorded: Recorded) -> None:
        """Refuses ids of another tokenizer as far as their size shows it."""
        if recorded.ids.size and recorded.ids.max() >= len(self.tokenizer):
            raise RowError(
                "bad recorded ids",
                f"id {recorded.ids.max()}, but the tokenizer has {len(self.tokenizer)} tokens",
            )
