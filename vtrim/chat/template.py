"""A tokenizer's chat template: what it renders, and where in the text the replies stand.

The reply is found by the *render boundary*: the template rendered up to the generation prompt,
against the same with the reply. Nothing is ever searched for in the users' text, so special
tokens spelled there cannot open a turn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jinja2.exceptions import TemplateError

from vtrim.chat.conversation import Conversation, Message
from vtrim.errors import InputError

Span = tuple[int, int]

_MARKS = re.compile(r"\{%-?\s*generation\s*-?%\}")
_REFUSALS = (TemplateError, TypeError, ValueError, KeyError, IndexError, AttributeError)
# Two texts without a common first or last character: what renders alike for both is not content.
_PROBES = ("Qvtrim probe oneX", "Zvtrim probe twoY")


class TemplateRefusal(InputError):  # noqa: N818 - a refusal, reported for a row
    """The chat template does not take these messages (their roles, their order, their tools)."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered text and the [start, end) character spans of the replies to learn from."""

    text: str
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Closing:
    """What the template writes after a last reply: its end of turn, then text that is no reply."""

    end_of_turn: str
    trailing: str

    @property
    def text(self) -> str:
        """Both."""
        return self.end_of_turn + self.trailing


class ChatTemplate:
    """Renders conversations with a tokenizer's chat template.

    Raises:
        InputError: the tokenizer has no chat template.
    """

    def __init__(self, tokenizer: Any) -> None:
        if not tokenizer.chat_template:
            raise InputError(
                f"{tokenizer.name_or_path or 'this tokenizer'}: has no chat template. "
                "Give one with --template FILE, or name the chat model instead of the base model."
            )
        self._tokenizer = tokenizer
        self.source: str = tokenizer.get_chat_template()
        self.has_marks = _MARKS.search(self.source) is not None

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Any] | None = None,
        generation_prompt: bool = False,
        **variables: Any,
    ) -> str:
        """The rendered text.

        Raises:
            TemplateRefusal: the template does not take these messages.
        """
        variables["add_generation_prompt"] = generation_prompt
        return self._render(messages, tools, variables)[0]

    def samples(self, conversation: Conversation) -> list[Rendered]:
        """The texts to learn from: one, or one a reply where later turns rewrite earlier ones.

        Decided by comparing renders: the conversation up to each reply must stand unchanged in
        the whole; a template that drops earlier ``<think>`` blocks fails that.

        Raises:
            TemplateRefusal: the template does not take this conversation.
        """
        messages, tools = conversation.messages, conversation.tools
        turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        if not turns:
            return []
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

    @cached_property
    def closing(self) -> Closing | None:
        """What follows a last reply, learned from a probe; None where none can be learned."""
        probe = _PROBES[0]
        messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": probe}]
        try:
            text = self.render(messages)
        except TemplateRefusal:
            return None
        if probe not in text:
            return None
        after = text[text.rindex(probe) + len(probe) :]
        token = self._first_added_token(after)
        end = token[1] if token else len(after.rstrip())
        return Closing(after[:end], after[end:])

    @cached_property
    def end_of_turn_id(self) -> int | None:
        """Id of the added token that closes a reply, if the template writes one."""
        token = self._first_added_token(self.closing.text) if self.closing else None
        return token[0] if token else None

    def _first_added_token(self, text: str) -> tuple[int, int] | None:
        """(id, end character) of the first added token in ``text``."""
        backend = self._tokenizer.backend_tokenizer
        added = backend.get_added_tokens_decoder()
        encoding = backend.encode(text, add_special_tokens=False)
        for token_id, (_, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token_id in added:
                return token_id, end
        return None

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any] | None,
        variables: Mapping[str, Any],
        *,
        marks: bool = False,
    ) -> tuple[str, list[Span]]:
        """The text, and the spans of its generation marks where ``marks`` asks for them."""
        from transformers.utils.chat_template_utils import render_jinja_template

        given: Any = list(tools) if tools else None
        try:
            rendered: Any = render_jinja_template(
                [list(messages)],
                tools=given,
                chat_template=self._tokenizer.get_chat_template(tools=given),
                return_assistant_tokens_mask=marks,
                **{**self._tokenizer.special_tokens_map, **variables},
            )
        except _REFUSALS as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise TemplateRefusal(f"the chat template refuses it ({reason[0]})") from error
        texts, marked = rendered
        return texts[0], [(start, end) for start, end in marked[0]] if marks else []

    def _reply_span(
        self, messages: Sequence[Message], tools: Sequence[Any] | None, text: str
    ) -> Span:
        """Span of the last message, an assistant turn, in the text rendered from ``messages``."""
        start = self._prompt_length(messages[:-1], tools, text)
        closing = self.closing
        if start is None or closing is None or not text.endswith(closing.text):
            low, high = self._span_by_probes(messages, tools, text)
            start = low if start is None else start
            end = high
        else:
            end = len(text) - len(closing.trailing)
        return start, max(start, end)

    def _prompt_length(
        self, messages: Sequence[Message], tools: Sequence[Any] | None, text: str
    ) -> int | None:
        """Length of the generation prompt that ``text`` starts with; None where it does not.

        An empty think block that the template adds for a reply without reasoning is part of the
        prompt, as serving with reasoning off has it.
        """
        variants: list[dict[str, Any]] = [{}]
        if "enable_thinking" in self.source:
            variants.insert(0, {"enable_thinking": False})
        for variables in variants:
            try:
                prompt = self.render(messages, tools=tools, generation_prompt=True, **variables)
            except TemplateRefusal:
                continue
            if text.startswith(prompt):
                return len(prompt)
        return None

    def _span_by_probes(
        self, messages: Sequence[Message], tools: Sequence[Any] | None, text: str
    ) -> Span:
        """Where the last message's content stands: what does not change when it is replaced."""
        low, high = len(text), len(text)
        for probe in _PROBES:
            other = self.render([*messages[:-1], {**messages[-1], "content": probe}], tools=tools)
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

        The end of turn is counted and the text after it is not, wherever the marks end.
        """
        if not self.has_marks:
            return rendered
        marks = self._render(messages, tools, {"add_generation_prompt": False}, marks=True)[1]
        start = rendered.spans[0][0]
        spans = tuple(self._close(rendered.text, *mark) for mark in marks if mark[1] >= start)
        return Rendered(rendered.text, spans) if spans else rendered

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
