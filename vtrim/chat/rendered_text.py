"""Replies in a text that is already rendered, by what the tokenizer's own template writes.

The headers that open a reply and the token that closes it are learned from probes. Unlike the
render boundary this has to search the text, so special tokens that a user has spelled in it cannot
be told from those of the template.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from vtrim.chat.conversation import Message, RowError
from vtrim.chat.templating import EMPTY_THINK, Rendered, Span, TemplateText

NO_HEADER = "no reply header in text"

_ASK = {"role": "user", "content": "Qvtrim askedX"}
_REPLY = {"role": "assistant", "content": "Zvtrim repliedY"}
_TOOL = {"role": "tool", "content": "Kvtrim returnedW", "tool_call_id": "probe0001"}
_AGAIN = {"role": "user", "content": "Jvtrim asked againV"}
_LAST = {"role": "assistant", "content": "Gvtrim replied againU"}


@dataclass(frozen=True, slots=True)
class Signs:
    """headers: texts that open a reply; ends: texts that close one, as the last or in history.

    openers: what begins another turn, so that a reply without its end of turn ends there;
    trailing: text between an end of turn and the next turn.
    """

    headers: tuple[str, ...]
    ends: tuple[str, ...]
    openers: tuple[str, ...]
    trailing: str


class RenderedText:
    """Finds the replies of rendered texts."""

    def __init__(self, template: TemplateText) -> None:
        self.signs = learn_signs(template)
        signs = self.signs
        self._header = _any(signs.headers)
        self._stop = _any((*signs.ends, *signs.openers))

    def sample(self, text: str, *, last_only: bool = False) -> Rendered:
        """The text with the spans of its replies; last_only: up to the last, which alone counts.

        Raises:
            RowError: there is no header of a reply in it.
        """
        spans = self._spans(text)
        if not spans:
            known = " or ".join(repr(header) for header in self.signs.headers) or "none known"
            raise RowError(NO_HEADER, f"the chat template opens replies with {known}")
        if last_only:
            return Rendered(text[: spans[-1][1]], (spans[-1],), "rendered text")
        return Rendered(text, tuple(spans), "rendered text")

    def _spans(self, text: str) -> list[Span]:
        spans = []
        place = 0
        while self._header is not None and (header := self._header.search(text, place)):
            start = header.end()
            stop = self._stop.search(text, start) if self._stop else None
            if stop is not None and stop[0] in self.signs.ends:
                end = stop.end()
            else:
                end = self._without_trailing(text, start, stop.start() if stop else len(text))
            if end > start:
                spans.append((start, end))
            place = max(end, start)
        return spans

    def _without_trailing(self, text: str, start: int, end: int) -> int:
        """End of a reply that has no end of turn: before the text that separates turns."""
        trailing = self.signs.trailing
        cut_off = end == len(text) and self.signs.ends
        if trailing and not cut_off and text.endswith(trailing, start, end):
            return end - len(trailing)
        return end


def learn_signs(template: TemplateText) -> Signs:
    """The signs of a template; no headers where it refuses the probes."""
    closing = template.closing
    end_of_turn, trailing = (closing.end_of_turn, closing.trailing) if closing else ("", "")
    asked = template.try_render([_ASK])
    headers = set() if asked is None else _headers(template, asked)
    between = [
        _between(template, [_ASK, _REPLY, _AGAIN], _REPLY, _AGAIN),
        _between(template, [_ASK, _REPLY, _TOOL, _LAST], _REPLY, _TOOL),
    ]
    openers = {_opener(template, trailing + header, trailing) for header in headers}
    ends = {end_of_turn}
    for text in filter(None, between):
        end = _history_end(template, text, end_of_turn, openers)
        ends.add(end)
        openers.add(_opener(template, text.removeprefix(end), trailing))
    after_tool = _between(template, [_ASK, _REPLY, _TOOL, _LAST], _TOOL, _LAST)
    if after_tool and not after_tool.endswith(tuple(headers)):
        added = template.added_tokens(after_tool)
        headers |= {after_tool[added[-1][1] :]} if added else set()
    return Signs(
        headers=tuple(sorted(headers, key=lambda header: (-len(header), header))),
        ends=tuple(sorted(ends - {""})),
        openers=tuple(sorted(openers - ends - {""})),
        trailing=trailing,
    )


def _history_end(template: TemplateText, text: str, end_of_turn: str, openers: set[str]) -> str:
    """The end of turn that ``text``, which stands between two turns, begins with; else empty.

    It is the usual one, or an added token that opens no turn but stands before one that does.
    """
    if text.startswith(end_of_turn):
        return end_of_turn
    added = template.added_tokens(text)
    if len(added) < 2 or added[0][1] > 0:
        return ""
    first = text[: added[0][2]]
    return "" if first in openers else first


def _headers(template: TemplateText, asked: str) -> set[str]:
    """What stands between a user's turn and the reply, in a prompt, as the last and in history.

    As with the render boundary, the prompt decides, and an empty think block belongs to it.
    """
    prompts = [
        template.try_render([_ASK], generation_prompt=True, **variables)
        for variables in ({}, {"enable_thinking": False})
    ]
    found = {text for text in prompts if text is not None and text.startswith(asked)}
    for messages in ([_ASK, _REPLY], [_ASK, _REPLY, _AGAIN, _LAST]):
        text = template.try_render(messages)
        if text is None or _REPLY["content"] not in text:
            continue
        before = text[: text.index(_REPLY["content"])]
        known = max((len(prompt) for prompt in found if before.startswith(prompt)), default=0)
        if EMPTY_THINK.fullmatch(before, known) or (not known and before.startswith(asked)):
            found.add(before)
    return {_header(template, asked, text) for text in found} - {""}


def _header(template: TemplateText, asked: str, text: str) -> str:
    """The end of ``text`` that opens a reply: what follows the user's turn.

    Where nothing does, what closes the user's turn opens the reply (Mistral's ``[/INST]``).
    """
    header = text[len(asked) :]
    if header.strip():
        return header
    closes = text[text.rindex(_ASK["content"]) + len(_ASK["content"]) :]
    added = template.added_tokens(closes)
    if added:
        return closes[added[-1][1] :]
    return closes if closes.strip() else ""


def _between(
    template: TemplateText, messages: Sequence[Message], one: Message, other: Message
) -> str | None:
    """The text between the contents of two messages; None where the template refuses them."""
    text = template.try_render(messages)
    if text is None or one["content"] not in text or other["content"] not in text:
        return None
    start = text.index(one["content"]) + len(one["content"])
    end = text.rindex(other["content"])
    return text[start:end] if end > start else None


def _opener(template: TemplateText, text: str, trailing: str) -> str:
    """The first added token of a turn's opening; the whole of it where it has none."""
    added = template.added_tokens(text)
    if added:
        return text[added[0][1] : added[0][2]]
    return text if trailing and text.startswith(trailing) and text != trailing else ""


def _any(texts: Sequence[str]) -> re.Pattern[str] | None:
    """A pattern of any of the texts, the earlier ones first."""
    return re.compile("|".join(re.escape(text) for text in texts)) if texts else None
