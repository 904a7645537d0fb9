"""Conversations to token ids and reply masks, by one rule for every command.

The mask's order of preference: recorded ids; for a text that is already rendered, the headers and
end of turn that the template writes (see ``rendered_text``); the template's ``{% generation %}``
marks; the render boundary (see ``template``).
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
from vtrim.chat.encode import Encoded, encode, fast_backend
from vtrim.chat.rendered_text import RenderedText
from vtrim.chat.skips import SkipLog
from vtrim.chat.template import ChatTemplate, Rendered, Rule, TemplateRefusal
from vtrim.chat.templating import reasoning_of
from vtrim.chat.turns import LEFT_OUT


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sample:
    """One sequence to count or to train on. ids: [T]; mask: [T] True on reply tokens."""

    ids: npt.NDArray[np.int64]
    mask: npt.NDArray[np.bool_]
    heldout: bool
    source: str | None
    origin: Origin


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Masked:
    """A whole sequence, before any length limit, and what made its mask.

    ids: [T]; mask: [T] True on reply tokens; text and encoded: None for recorded ids.
    """

    ids: npt.NDArray[np.int64]
    mask: npt.NDArray[np.bool_]
    rule: Rule
    text: str | None = None
    encoded: Encoded | None = None


class Renderer:
    """Renders and encodes conversations for one tokenizer.

    max_length: tokens kept of a sequence, cut on the right as training does; last_turn_only: of
    each conversation only the last reply is learned. Rows that leave nothing to learn are noted in
    ``skipped``; ``straddling`` counts tokens that cross the start of a reply, ``cut_replies``
    samples of which the limit left nothing in a row that is still used, ``reasoning_dropped`` rows
    with reasoning that the template does not write, ``empty_replies`` replies of which nothing but
    the end of turn is learned, ``parts_left_out`` images and the like.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        max_length: int | None = None,
        skipped: SkipLog | None = None,
        last_turn_only: bool = False,
    ) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.last_turn_only = last_turn_only
        self.skipped = SkipLog() if skipped is None else skipped
        self.straddling = 0
        self.cut_replies = 0
        self.reasoning_dropped = 0
        self.empty_replies = 0
        self.parts_left_out = 0
        self._backend = fast_backend(tokenizer)

    @cached_property
    def template(self) -> ChatTemplate:
        """The tokenizer's chat template; recorded rows need none."""
        return ChatTemplate(self.tokenizer)

    @cached_property
    def rendered_text(self) -> RenderedText:
        """What finds the replies of rows that are already rendered."""
        return RenderedText(self.template)

    def samples(self, conversation: Conversation) -> list[Sample]:
        """The samples of a conversation: none (noted in ``skipped``), one, or one a reply.

        There is one a reply where the template rewrites earlier turns, e.g. drops their
        ``<think>`` blocks: then each reply is learned after the prompt it will be served with.
        """
        try:
            sequences = self.masked(conversation)
        except TemplateRefusal as error:
            self.skipped.add("template refusal", conversation.origin, str(error))
            return []
        except RowError as error:
            self.skipped.add(error.reason, conversation.origin, error.detail)
            return []
        if not any(found.mask.any() for found in sequences):
            self.skipped.add("no reply", conversation.origin, "no assistant turn")
            return []
        limit = self.max_length
        used = [found for found in sequences if found.mask[:limit].any()]
        if not used:
            detail = f"no reply token within --max-length {limit}"
            self.skipped.add("reply beyond max length", conversation.origin, detail)
            return []
        self.cut_replies += len(sequences) - len(used)
        self.straddling += sum(found.encoded.straddling for found in sequences if found.encoded)
        self.reasoning_dropped += self._drops_reasoning(conversation)
        if conversation.recorded is None:
            self.empty_replies += self._num_empty(conversation)
            self.parts_left_out += sum(turn.get(LEFT_OUT, 0) for turn in conversation.messages)
        heldout = is_heldout(conversation)
        return [
            Sample(
                ids=found.ids[:limit],
                mask=found.mask[:limit],
                heldout=heldout,
                source=conversation.source,
                origin=conversation.origin,
            )
            for found in used
        ]

    def masked(self, conversation: Conversation) -> list[Masked]:
        """The whole sequences of a conversation; nothing is noted.

        Raises:
            TemplateRefusal: the template does not take this conversation.
            RowError: recorded ids of another tokenizer, or a text without a reply's header.
        """
        if conversation.recorded is not None:
            self._check_recorded(conversation.recorded)
            return [self._recorded(conversation.recorded)]
        if conversation.text is not None:
            found = self.rendered_text.sample(conversation.text, last_only=self.last_turn_only)
            return [self._encoded(found)]
        rendered = self.template.samples(conversation, last_only=self.last_turn_only)
        return [self._encoded(sample) for sample in rendered]

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

    def text_prompt_ids(self, text: str) -> list[int]:
        """Ids of what stands before the last reply of a rendered text.

        Raises:
            RowError: there is no header of a reply in it.
        """
        found = self.rendered_text.sample(text, last_only=True)
        prompt = found.text[: found.spans[0][0]]
        ids: list[int] = self._backend.encode(prompt, add_special_tokens=False).ids
        return ids

    def _encoded(self, rendered: Rendered) -> Masked:
        encoded = encode(self._backend, rendered.text, rendered.spans)
        return Masked(
            ids=encoded.ids,
            mask=encoded.mask,
            rule=rendered.rule,
            text=rendered.text,
            encoded=encoded,
        )

    def _recorded(self, recorded: Recorded) -> Masked:
        """The recorded ids, up to their last run of reply tokens where only that is learned."""
        ids, mask = recorded.ids, recorded.mask
        if self.last_turn_only and mask.any():
            end = int(np.flatnonzero(mask)[-1]) + 1
            gaps = np.flatnonzero(~mask[:end])
            start = int(gaps[-1]) + 1 if gaps.size else 0
            ids, mask = ids[:end], np.arange(end) >= start
        return Masked(ids=ids, mask=mask, rule="recorded")

    def _drops_reasoning(self, conversation: Conversation) -> bool:
        """Whether the conversation has reasoning that the template leaves out."""
        given = any(len(turn) > 2 and reasoning_of(turn) for turn in conversation.messages)
        return given and conversation.recorded is None and not self.template.writes_reasoning

    def _num_empty(self, conversation: Conversation) -> int:
        """Learned replies with neither text nor reasoning nor calls."""
        turns = conversation.messages[conversation.context :]
        replies = [turn for turn in turns if turn["role"] == "assistant"]
        return sum(
            not (turn["content"].strip() or turn.get("tool_calls") or reasoning_of(turn))
            for turn in (replies[-1:] if self.last_turn_only else replies)
        )

    def _check_recorded(self, recorded: Recorded) -> None:
        """Refuses ids of another tokenizer as far as their size shows it."""
        if recorded.ids.size and recorded.ids.max() >= len(self.tokenizer):
            raise RowError(
                "bad recorded ids",
                f"id {recorded.ids.max()}, but the tokenizer has {len(self.tokenizer)} tokens",
            )
