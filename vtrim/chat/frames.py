"""What a chat template writes around a reply, learned from probes for each order of roles.

Special tokens are hard boundaries for a tokenizer, so the text from the special token before a
reply to the one that ends it is encoded the same alone as in its conversation. A *frame* is that
text with a gap for the reply. Counting with frames needs neither the template nor the prompts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from jinja2 import Environment, TemplateSyntaxError, nodes

from vtrim.chat.conversation import Conversation, Message, Origin
from vtrim.chat.template import ChatTemplate, TemplateRefusal

_MARK_TAGS = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
_TRIMS: tuple[Callable[[str], str], ...] = (
    lambda text: text,
    lambda text: text.strip(),
    lambda text: text.lstrip(),
    lambda text: text.rstrip(),
    lambda text: text.strip("\n"),
    lambda text: text.lstrip("\n"),
    lambda text: text.rstrip("\n"),
)
# Around the probe's core: nothing, and white space that tells the trims apart.
_EDGES = (("", ""), (" \n\t", "\t\n "), ("\n\n \t", "\t \n\n"))
_MAX_SHAPES = 512
_NOWHERE = Origin("probe", 0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Frame:
    """lead + before + trim(reply) + after, where lead starts and after begins with a special token.

    lead: prompt text; lead_ids: its ids. before, after: text of the reply that is the same in
    every reply.
    """

    lead: str
    before: str
    after: str
    trim: Callable[[str], str]
    lead_ids: npt.NDArray[np.int64]

    def segment(self, reply: str) -> str:
        """The text to encode for a trimmed reply."""
        return f"{self.lead}{self.before}{reply}{self.after}"


class Frames:
    """The frames of a template, one a reply for each order of roles; None where it has none.

    last_only: the frame of the last reply alone.
    """

    def __init__(self, template: ChatTemplate, backend: Any, *, last_only: bool = False) -> None:
        self._template = template
        self._backend = backend
        self._last_only = last_only
        self._added = set(backend.get_added_tokens_decoder())
        self._known: dict[tuple[str, ...], list[Frame] | None] = {}
        self._made: dict[tuple[str, str, str, int], Frame] = {}
        self._tested = texts_looked_for(template.source)

    def of(self, conversation: Conversation) -> list[Frame] | None:
        """The frame of each assistant turn; None where the whole has to be rendered.

        That is: tools or recorded ids, texts that the template looks into, orders of roles that it
        refuses or writes in an irregular way.
        """
        if self._tested is None or not conversation.is_plain:
            return None
        messages = conversation.messages
        for text in self._tested:
            for message in messages:
                if text in message["content"]:
                    return None
        shape = tuple([message["role"] for message in messages])
        if shape not in self._known:
            if len(self._known) >= _MAX_SHAPES:
                return None
            self._known[shape] = self._learn(shape)
        return self._known[shape]

    def _learn(self, shape: tuple[str, ...]) -> list[Frame] | None:
        turns = [index for index, role in enumerate(shape) if role == "assistant"]
        if self._last_only:
            turns = turns[-1:]
        cores = [f"Probe{index}Q" for index in range(len(shape))]
        views = []
        for left, right in _EDGES:
            contents = [f"{left}{core}{right}" for core in cores]
            messages = tuple(
                {"role": role, "content": content}
                for role, content in zip(shape, contents, strict=True)
            )
            places = self._places(messages, len(turns))
            if places is None:
                return None
            views.append(
                [(*place, contents[turn]) for place, turn in zip(places, turns, strict=True)]
            )
        frames = []
        for turn, seen in zip(turns, zip(*views, strict=True), strict=True):
            frame = self._frame(cores[turn], seen)
            if frame is None:
                return None
            frames.append(frame)
        return frames

    def _places(
        self, messages: tuple[Message, ...], num_turns: int
    ) -> list[tuple[str, int, int]] | None:
        """(text, start, end) of each reply, if the template gives exactly one span a reply."""
        conversation = Conversation(messages=messages, origin=_NOWHERE, kind="messages")
        try:
            samples = self._template.samples(conversation, last_only=self._last_only)
        except TemplateRefusal:
            return None
        places = [(sample.text, *span) for sample in samples for span in sample.spans]
        return places if len(places) == num_turns else None

    def _frame(self, core: str, seen: Sequence[tuple[str, int, int, str]]) -> Frame | None:
        """The frame that explains every view (text, start, end, content) of one reply."""
        text, start, end, _ = seen[0]
        reply = text[start:end]
        if reply.count(core) != 1:
            return None
        before, after = reply.split(core)
        lead = self._lead(text, start)
        if not lead or not self._starts_special(after):
            return None
        trims = [
            trim
            for trim in _TRIMS
            if all(
                text[start:end] == before + trim(content) + after and text[:start].endswith(lead)
                for text, start, end, content in seen
            )
        ]
        if not trims:
            return None
        key = (lead, before, after, _TRIMS.index(trims[0]))
        if key not in self._made:
            ids = self._backend.encode(lead, add_special_tokens=False).ids
            lead_ids = np.asarray(ids, dtype=np.int64)
            self._made[key] = Frame(
                lead=lead, before=before, after=after, trim=trims[0], lead_ids=lead_ids
            )
        return self._made[key]

    def _specials(self, text: str) -> list[tuple[int, int]]:
        """Spans of the added tokens in a text."""
        encoding = self._backend.encode(text, add_special_tokens=False)
        pairs = zip(encoding.ids, encoding.offsets, strict=True)
        return [span for token, span in pairs if token in self._added]

    def _lead(self, text: str, start: int) -> str:
        """The text from the last added token before ``start``; empty if there is none."""
        inside = [span for span in self._specials(text) if span[1] <= start]
        return text[inside[-1][0] : start] if inside else ""

    def _starts_special(self, text: str) -> bool:
        found = self._specials(text)
        return bool(found) and found[0][0] == 0


def texts_looked_for(source: str) -> list[str] | None:
    """Texts that a template looks for in messages (``in``, ``split``, ``replace`` ...).

    A message that holds one may be rendered in another way than its neighbours. None where the
    template cannot be analysed.
    """
    try:
        tree = Environment(  # noqa: S701 - parsed, never rendered
            extensions=["jinja2.ext.loopcontrols"]
        ).parse(_MARK_TAGS.sub("", source))
    except TemplateSyntaxError:
        return None
    found: set[str] = set()
    for comparison in tree.find_all(nodes.Compare):
        if any(operand.op in ("in", "notin") for operand in comparison.ops):
            found.update(_constants([comparison.expr, *(op.expr for op in comparison.ops)]))
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Getattr) and not call.node.attr.endswith("strip"):
            found.update(_constants(call.args))
    for filtered in tree.find_all(nodes.Filter):
        if filtered.name == "replace":
            found.update(_constants(filtered.args))
    return sorted(found - {""})


def _constants(expressions: Iterable[nodes.Expr]) -> list[str]:
    return [
        expression.value
        for expression in expressions
        if isinstance(expression, nodes.Const) and isinstance(expression.value, str)
    ]
