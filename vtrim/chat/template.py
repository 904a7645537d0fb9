"""Where the replies stand in a conversation that a chat template has rendered.

A reply is found by the *render boundary*: the template rendered up to the generation prompt,
against the same with the reply. Nothing is ever searched for in the users' text, so special
tokens spelled there cannot open a turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vtrim.chat.conversation import Conversation, Message
from vtrim.chat.templating import (
    EMPTY_THINK,
    PROBES,
    Closing,
    Rendered,
    Rule,
    Span,
    TemplateRefusal,
    TemplateText,
    reasoning_of,
)

__all__ = ["ChatTemplate", "Closing", "Rendered", "Rule", "Span", "TemplateRefusal"]


class ChatTemplate(TemplateText):
    """Renders conversations with a tokenizer's chat template and finds their replies.

    Raises:
        InputError: the tokenizer has no chat template.
    """

    def samples(self, conversation: Conversation, *, last_only: bool = False) -> list[Rendered]:
        """The texts to learn from: one, or one a reply where later turns rewrite earlier ones.

        Decided by comparing renders: the conversation up to each reply must stand unchanged in
        the whole; a template that drops earlier ``<think>`` blocks fails that. Replies among the
        first ``context`` messages are prompt. last_only: the conversation up to its last reply,
        with that reply alone to learn.

        Raises:
            TemplateRefusal: the template does not take this conversation.
        """
        messages, tools = conversation.messages, conversation.tools
        turns = [
            place
            for place, message in enumerate(messages)
            if message["role"] == "assistant" and place >= conversation.context
        ]
        if not turns:
            return []
        if last_only:
            messages, turns = messages[: turns[-1] + 1], turns[-1:]
        whole = self.render(messages, tools=tools)
        parts = []
        for turn in turns:
            head = messages[: turn + 1]
            text = whole if turn == len(messages) - 1 else self.render(head, tools=tools)
            parts.append(Rendered(text, (self._reply_span(head, tools, text),)))
        if all(whole.startswith(part.text[: part.spans[0][1]]) for part in parts):
            spans = tuple(part.spans[0] for part in parts)
            return [self._with_marks(Rendered(whole, spans), messages, tools)]
        return [
            self._with_marks(part, messages[: turn + 1], tools)
            for turn, part in zip(turns, parts, strict=True)
        ]

    def _reply_span(
        self, messages: Sequence[Message], tools: Sequence[Any] | None, text: str
    ) -> Span:
        """Span of the last message, an assistant turn, in the text rendered from ``messages``."""
        start = self._prompt_length(messages, tools, text)
        end = None if start is None else self._reply_end(text, start)
        if start is None or end is None:
            low, high = self._span_by_probes(messages, tools, text)
            start, end = low if start is None else start, high
        return start, max(start, end)

    def _reply_end(self, text: str, start: int) -> int | None:
        """End of a reply that ends the text; None where nothing is known of how replies end.

        A reply of another kind (a tool call) may close with another token than the usual one.
        """
        closing = self.closing
        if closing is not None and text.endswith(closing.text):
            return len(text) - len(closing.trailing)
        added = self.added_tokens(text[start:])
        if added and not text[start + added[-1][2] :].strip():
            return start + added[-1][2]
        return None if closing is None else len(text.removesuffix(closing.trailing))

    def _prompt_length(
        self, messages: Sequence[Message], tools: Sequence[Any] | None, text: str
    ) -> int | None:
        """Length of the prompt that ``text`` starts with; None where it does not.

        An empty think block that the template adds for a reply without reasoning is part of the
        prompt, as serving with reasoning off has it.
        """
        variants: list[dict[str, Any]] = [{}]
        if "enable_thinking" in self.source:
            variants.insert(0, {"enable_thinking": False})
        for variables in variants:
            prompt = self.try_render(
                messages[:-1], tools=tools, generation_prompt=True, **variables
            )
            if prompt is not None and text.startswith(prompt):
                return len(prompt) + _empty_think(messages[-1], prompt, text)
        return None

    def _span_by_probes(
        self, messages: Sequence[Message], tools: Sequence[Any] | None, text: str
    ) -> Span:
        """Where the last message's content stands: what does not change when it is replaced."""
        low, high = len(text), len(text)
        for probe in PROBES:
            reply = {"role": "assistant", "content": probe}
            other = self.render([*messages[:-1], reply], tools=tools)
            low = min(low, _common_prefix(text, other))
            high = min(high, _common_prefix(text[::-1], other[::-1]))
        end = max(low, len(text) - high)
        if self.closing and text.startswith(self.closing.end_of_turn, end):
            end += len(self.closing.end_of_turn)
        return low, end

    def _with_marks(
        self, rendered: Rendered, messages: Sequence[Message], tools: Sequence[Any] | None
    ) -> Rendered:
        """The same with the spans of ``{% generation %}`` marks, where the template has them.

        The end of turn is counted and the text after it is not, wherever the marks end; an empty
        think block that the template adds is not counted either.
        """
        if not self.has_marks:
            return rendered
        marks = self._render(messages, tools, {"add_generation_prompt": False}, marks=True)[1]
        first = rendered.spans[0][0]
        spans = tuple(
            self._close(rendered.text, self._open(rendered, *mark), mark[1])
            for mark in marks
            if mark[1] >= first
        )
        return replace(rendered, spans=spans, rule="generation marks") if spans else rendered

    def _open(self, rendered: Rendered, start: int, end: int) -> int:
        """Start of a mark, behind an empty think block that stands before the reply."""
        for boundary, _ in rendered.spans:
            if start < boundary <= end and EMPTY_THINK.fullmatch(rendered.text, start, boundary):
                return boundary
        return start

    def _close(self, text: str, start: int, end: int) -> Span:
        """The span with the end of turn that follows it, without the text after that."""
        closing = self.closing
        if closing is None or not closing.end_of_turn:
            return start, end
        if text.startswith(closing.end_of_turn, end):
            return start, end + len(closing.end_of_turn)
        if text[start:end].endswith(closing.text):
            return start, end - len(closing.trailing)
        return start, end


def _empty_think(reply: Message, prompt: str, text: str) -> int:
    """Length of the empty think block behind the prompt that is not the reply's own."""
    if "</think>" in reply["content"] or reasoning_of(reply):
        return 0
    found = EMPTY_THINK.match(text, len(prompt))
    opened = prompt.rstrip().endswith("<think>")
    return len(found[0]) if found and (opened or found[0].startswith("<think>")) else 0


def _common_prefix(one: str, other: str) -> int:
    """Length of the longest common prefix."""
    size = min(len(one), len(other))
    if one[:size] == other[:size]:
        return size
    low, high = 0, size
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle)
    return low
