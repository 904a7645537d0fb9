"""Tool calls in the form that a chat template takes them in.

Templates disagree: some need ``content`` null beside calls and some fail on null; some write
``arguments`` as they stand (a JSON text) and some turn an object into JSON, which would quote a
text twice. The form is learned by rendering one call in each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]

_NAME, _KEY, _VALUE = "probe_function", "probeKey", "probeValue"
# neither quoted twice nor written as Python's repr
_WRITTEN = re.compile(rf"{_KEY}[^\\']{{1,40}}{_VALUE}")
_ID = "probe0001"  # nine letters and digits: some templates insist


@dataclass(frozen=True, slots=True)
class CallForm:
    """null_content: ``content`` is null beside calls; as_text: arguments are a JSON text."""

    null_content: bool
    as_text: bool

    def apply(self, message: Message) -> Message:
        """The message with its calls in this form; other messages as they are."""
        calls = message.get("tool_calls")
        if not isinstance(calls, Sequence) or not calls or isinstance(calls, str):
            return message
        content = message["content"]
        return {
            **message,
            "content": None if self.null_content and not content else content,
            "tool_calls": [self._call(call) for call in calls],
        }

    def _call(self, call: Any) -> Any:
        if not isinstance(call, Mapping):
            return call
        inner = call.get("function", call)
        if not isinstance(inner, Mapping):
            return call
        function = {key: inner[key] for key in inner if key not in ("id", "type")}
        function["arguments"] = self._arguments(inner.get("arguments"))
        outer = {"id": call["id"]} if call.get("id") is not None else {}
        return {**outer, "type": "function", "function": function}

    def _arguments(self, arguments: Any) -> Any:
        """The arguments as a JSON text or as an object; text that is not JSON stays text."""
        if arguments is None:
            arguments = {}
        if self.as_text:
            if isinstance(arguments, str):
                return arguments
            return json.dumps(arguments, ensure_ascii=False)
        if isinstance(arguments, str):
            try:
                return json.loads(arguments) if arguments.strip() else {}
            except (ValueError, RecursionError):  # also numbers and depths beyond Python's limits
                return arguments
        return arguments


FORMS = tuple(CallForm(null, text) for text in (False, True) for null in (False, True))


def learn_form(render: Callable[[list[Message]], str | None], content: str) -> CallForm | None:
    """The first form in which a template writes a call beside ``content``; None if it writes none.

    render: the text of a conversation, or None where the template refuses it. Where it refuses
    every probe, nothing is known, and the first form stands.
    """
    refused = 0
    for form in FORMS:
        call = {"id": _ID, "name": _NAME, "arguments": {_KEY: _VALUE}}
        message = form.apply({"role": "assistant", "content": content, "tool_calls": [call]})
        text = render([{"role": "user", "content": "x"}, message])
        if text is None:
            refused += 1
        elif _NAME in text and _WRITTEN.search(text):
            return form
    return FORMS[0] if refused == len(FORMS) else None
