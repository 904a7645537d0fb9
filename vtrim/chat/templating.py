"""A tokenizer's chat template: what it renders, and what it writes after a reply."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from jinja2.exceptions import TemplateSyntaxError

from vtrim.chat.conversation import Message
from vtrim.chat.tool_calls import CallForm, learn_form
from vtrim.errors import InputError

Span = tuple[int, int]
Rule = Literal["recorded", "generation marks", "render boundary", "rendered text"]

# Two texts without a common first or last character: what renders alike for both is not content.
PROBES = ("Qvtrim probe oneX", "Zvtrim probe twoY")
REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
# What a template writes for a reply without reasoning; the prompt may have opened it already.
EMPTY_THINK = re.compile(r"(?:<think>)?\s*</think>\n{0,2}")
_MARKS = re.compile(r"\{%-?\s*generation\s*-?%\}")


class TemplateRefusal(InputError):  # noqa: N818 - a refusal, reported for a row
    """The chat template does not take these messages (their roles, their order, their tools)."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered text, the [start, end) character spans of its replies, and what found them."""

    text: str
    spans: tuple[Span, ...]
    rule: Rule = "render boundary"


@dataclass(frozen=True, slots=True)
class Closing:
    """What the template writes after a last reply: its end of turn, then text that is no reply."""

    end_of_turn: str
    trailing: str

    @property
    def text(self) -> str:
        """Both."""
        return self.end_of_turn + self.trailing


class TemplateText:
    """Texts that a tokenizer's chat template gives.

    Raises:
        InputError: the tokenizer has no chat template, or one that is not valid Jinja.
    """

    def __init__(self, tokenizer: Any) -> None:
        if not tokenizer.chat_template:
            raise InputError(
                f"{tokenizer.name_or_path or 'this tokenizer'}: has no chat template. "
                "Give one with --template FILE, or name the chat model instead of the base model."
            )
        self._tokenizer = tokenizer
        self._forms: dict[bool, CallForm | None] = {}
        self.source: str = tokenizer.get_chat_template()
        self.has_marks = _MARKS.search(self.source) is not None
        self._check_syntax()

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

    @cached_property
    def closing(self) -> Closing | None:
        """What follows a last reply, learned from a probe; None where none can be learned."""
        probe = PROBES[0]
        text = self.try_render(
            [{"role": "user", "content": "x"}, {"role": "assistant", "content": probe}]
        )
        if text is None or probe not in text:
            return None
        after = text[text.rindex(probe) + len(probe) :]
        token = self.first_added_token(after)
        end = token[1] if token else len(after.rstrip())
        return Closing(after[:end], after[end:])

    @cached_property
    def end_of_turn_id(self) -> int | None:
        """Id of the added token that closes a reply, if the template writes one."""
        token = self.first_added_token(self.closing.text) if self.closing else None
        return token[0] if token else None

    @cached_property
    def writes_reasoning(self) -> bool:
        """Whether reasoning beside a last reply's content is written at all."""
        reply = {"role": "assistant", "content": PROBES[0], "reasoning_content": PROBES[1]}
        text = self.try_render([{"role": "user", "content": "x"}, reply])
        return text is not None and PROBES[1] in text

    def try_render(self, messages: Sequence[Message], **options: Any) -> str | None:
        """As ``render``, but None where the template refuses."""
        try:
            return self.render(messages, **options)
        except TemplateRefusal:
            return None

    def added_tokens(self, text: str) -> list[tuple[int, int, int]]:
        """(id, start, end) of the added tokens in ``text``; not Gemma's line breaks and blanks."""
        backend = self._tokenizer.backend_tokenizer
        added = backend.get_added_tokens_decoder()
        encoding = backend.encode(text, add_special_tokens=False)
        pairs = zip(encoding.ids, encoding.offsets, strict=True)
        return [
            (token, *span) for token, span in pairs if token in added and text[slice(*span)].strip()
        ]

    def first_added_token(self, text: str) -> tuple[int, int] | None:
        """(id, end character) of the first added token in ``text``."""
        found = self.added_tokens(text)
        return (found[0][0], found[0][2]) if found else None

    def _check_syntax(self) -> None:
        """Refuses at once what would refuse every row."""
        from transformers.utils.chat_template_utils import render_jinja_template

        try:
            render_jinja_template([[]], chat_template=self.source)
        except TemplateSyntaxError as error:
            raise InputError(
                f"{self._tokenizer.name_or_path or 'this tokenizer'}: its chat template is not "
                f"valid Jinja (line {error.lineno}: {error.message}). "
                "Give another with --template FILE."
            ) from error
        except Exception:  # noqa: BLE001 - its code on no messages at all: that proves nothing
            return

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any] | None,
        variables: Mapping[str, Any],
        *,
        marks: bool = False,
    ) -> tuple[str, list[Span]]:
        """The text, and the spans of its generation marks where ``marks`` asks for them."""
        try:
            prepared = [self._prepared(message) for message in messages]
        except (TypeError, ValueError, RecursionError) as error:
            raise TemplateRefusal(f"its tool calls cannot be written as JSON ({error})") from error
        return self._jinja(prepared, tools, variables, marks)

    def _jinja(
        self,
        messages: list[Message],
        tools: Sequence[Any] | None,
        variables: Mapping[str, Any],
        marks: bool = False,
    ) -> tuple[str, list[Span]]:
        from transformers.utils.chat_template_utils import render_jinja_template

        given: Any = list(tools) if tools else None
        try:
            rendered: Any = render_jinja_template(
                [messages],
                tools=given,
                chat_template=self._tokenizer.get_chat_template(tools=given),
                return_assistant_tokens_mask=marks,
                **{**self._tokenizer.special_tokens_map, **variables},
            )
        except Exception as error:  # the template is code of a third party
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise TemplateRefusal(f"the chat template refuses it ({reason[0]})") from error
        texts, marked = rendered
        if not _is_unicode(texts[0]):  # JSON inside JSON can spell it unseen
            raise TemplateRefusal("half of a surrogate pair, which UTF-8 cannot hold")
        return texts[0], [(start, end) for start, end in marked[0]] if marks else []

    def _prepared(self, message: Message) -> Message:
        """The message as this template takes it: reasoning under any key, calls in its form.

        Raises:
            TemplateRefusal: the template writes no tool calls, so the reply would be lost.
        """
        if len(message) == 2:
            return message
        reasoning = reasoning_of(message)
        if reasoning:
            missing = (key for key in REASONING_KEYS if not message.get(key))
            message = {**message, **dict.fromkeys(missing, reasoning)}
        if not message.get("tool_calls"):
            return message
        form = self._call_form(str(message["content"]))
        if form is None:
            beside = " beside text" if message["content"] else ""
            raise TemplateRefusal(f"the chat template writes no tool calls{beside}")
        return form.apply(message)

    def _call_form(self, content: str) -> CallForm | None:
        """The form for calls beside a content or beside none."""
        beside = bool(content)
        if beside not in self._forms:
            self._forms[beside] = learn_form(self._probe, PROBES[0] if beside else "")
        return self._forms[beside]

    def _probe(self, messages: list[Message]) -> str | None:
        try:
            return self._jinja(messages, None, {"add_generation_prompt": False})[0]
        except TemplateRefusal:
            return None


def _is_unicode(text: str) -> bool:
    """Whether UTF-8 can hold the text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def reasoning_of(message: Message) -> str:
    """The reasoning beside a reply's content, under whichever key it stands."""
    for key in REASONING_KEYS:
        value = message.get(key)
        if isinstance(value, str) and value:
            return value
    return ""
