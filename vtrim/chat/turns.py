"""One turn of a conversation in its normal form: one of four roles, and text as content."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

from vtrim.chat.parts import Parts, parts_of, turns_in
from vtrim.chat.visible import one_line, short

Message = dict[str, Any]

_NORMAL = frozenset(("system", "user", "assistant", "tool"))

# Spellings of the four roles in published chat data, lower case.
ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human", "prompter"), "user"),
    **dict.fromkeys(
        ("assistant", "gpt", "chatgpt", "bing", "bard", "model", "function_call"), "assistant"
    ),
    **dict.fromkeys(
        ("tool", "observation", "function", "function_response", "tool_response", "ipython"), "tool"
    ),
}

# Keys of a message that templates read besides role and content.
_EXTRA_KEYS = ("name", "reasoning", "reasoning_content", "thinking", "tool_call_id", "tool_calls")
# Of a message: number of its parts that hold no text, such as images.
LEFT_OUT = "parts_left_out"
# Values of tables that JSON has no form for, and that have one as text.
_AS_TEXT = (datetime.date, datetime.time, datetime.timedelta, Decimal)


class RowError(Exception):
    """A row that cannot be used; ``reason`` is the heading it is counted under."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        self.detail = one_line(detail)
        super().__init__(f"{reason}: {self.detail}")


def messages_of(turns: Any, column: str) -> list[Message]:
    """The turns in a column: a list, the JSON text of one, or one list for each key (Arrow).

    Raises:
        RowError: it is none of these, or a turn has an unknown role or content.
    """
    if isinstance(turns, str):
        turns = _parsed(turns)
    elif isinstance(turns, dict):
        turns = _rows_of(turns)
    if not isinstance(turns, list):
        raise RowError("no messages", f"`{column}` holds no list of turns")
    return [message_of(one) for turn in turns for one in turns_in(turn)]


def message_of(turn: Any) -> Message:
    """One turn with its role in one of the four spellings and its content as text.

    Raises:
        RowError: the turn is no object, or its role or content is not known.
    """
    if turn.__class__ is dict and len(turn) == 2:  # already normal, as nearly all turns are
        role, content = turn.get("role"), turn.get("content")
        if role.__class__ is str and role in _NORMAL and content.__class__ is str:
            return turn
    if isinstance(turn, str):  # Arrow keeps objects of mixed types as JSON text
        turn = _parsed(turn)
    if not isinstance(turn, dict):
        raise RowError("no messages", "a turn is not a JSON object")
    name = first_of(turn, "role", "from")
    role = ROLES.get(name.lower()) if isinstance(name, str) else None
    if role is None:
        shown = f"'{short(name)}'" if isinstance(name, str) else short(name)
        raise RowError("unknown role", f"role {shown} is none of user, assistant, system, tool")
    content = first_of(turn, "content", "value", "text")
    if role == "tool" and isinstance(content, dict):
        content = json_text(content)
    parts = content if isinstance(content, list) else None
    message: Message = {"role": role, "content": text_of(content) if parts is None else ""}
    message.update((key, turn[key]) for key in _EXTRA_KEYS if turn.get(key) is not None)
    if role == "assistant" and turn.get("weight") == 0:
        message["weight"] = 0
    if parts is not None:
        _add_parts(message, parts)
    _complete_calls(message, turn)
    return message


def text_of(content: Any) -> str:
    """The text of a content: a string, a list of text parts (joined) or null (empty).

    Raises:
        RowError: it is anything else, or has other parts.
    """
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, list):
        parts = _parts(content)
        if parts.num_without_text:
            raise RowError("unreadable content", "a content with parts that are no text")
        return parts.text
    raise RowError("unreadable content", f"content is {type(content).__name__}, not text")


def with_system(messages: list[Message], system: Any) -> list[Message]:
    """The messages behind a row's own system text, unless they begin with one.

    Raises:
        RowError: the system text is no text.
    """
    text = text_of(system)
    if not text or (messages and messages[0]["role"] == "system"):
        return messages
    return [{"role": "system", "content": text}, *messages]


def without_nulls(value: Any) -> Any:
    """The same without keys that hold null, at any depth, and with dates and decimals as text.

    Arrow gives every object of a column the keys of all of them, and fills the absent ones with
    null, which a template would print.
    """
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list) and not isinstance(value[0] if value else 0, (int, float, str)):
        return [without_nulls(one) for one in value]
    return str(value) if isinstance(value, _AS_TEXT) else value


def check_unicode(*values: Any) -> None:
    """Refuses half of a surrogate pair (JSON can spell one, UTF-8 cannot hold it).

    Raises:
        RowError: a text holds one, or a value is none of JSON's (bytes in a table).
    """
    try:
        for value in values:
            (value if isinstance(value, str) else json_text(value)).encode()
    except UnicodeEncodeError as error:
        raise RowError("unreadable content", "half of a surrogate pair") from error


def json_text(value: Any) -> str:
    """The value as JSON.

    Raises:
        RowError: it is none of JSON's.
    """
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise RowError("unreadable content", "nested too deeply") from error
    except (TypeError, ValueError) as error:
        raise RowError("unreadable content", f"not a JSON value ({error})") from error


def first_of(row: dict[str, Any], *names: str) -> Any:
    """The first of the columns that is there and not null; None without any."""
    return next((row[name] for name in names if row.get(name) is not None), None)


def _parts(content: list[Any]) -> Parts:
    if not all(isinstance(part, (str, dict)) for part in content):
        raise RowError("unreadable content", "a content part is neither text nor an object")
    return parts_of(content)


def _add_parts(message: Message, content: list[Any]) -> None:
    """Fills a message from its parts: text, and an assistant's reasoning and calls.

    Raises:
        RowError: a reply has a part of another kind, which would be lost.
    """
    parts = _parts(content)
    message["content"] = parts.text
    is_reply = message["role"] == "assistant"
    if left_out := parts.media if is_reply else parts.num_without_text:
        message[LEFT_OUT] = left_out
    if not is_reply:
        return
    if parts.others:
        raise RowError("unreadable content", f"a reply with a part of type {parts.others[0]!r}")
    if parts.reasoning and not message.get("reasoning_content"):
        message["reasoning_content"] = parts.reasoning
    if parts.calls and not message.get("tool_calls"):
        message["tool_calls"] = parts.calls


def _complete_calls(message: Message, turn: dict[str, Any]) -> None:
    """Calls given as JSON text, alone, or in the older ``function_call``, become ``tool_calls``.

    Raises:
        RowError: they are no objects, so that they would be lost.
    """
    calls = message.pop("tool_calls", None)
    older = turn.get("function_call")
    if not calls and older and message["role"] == "assistant":
        older = _parsed(older) if isinstance(older, str) else older
        calls = [{"type": "function", "function": older}]
    if isinstance(calls, str):
        calls = _parsed(calls) if calls.strip() else None
    if not calls:
        return
    calls = calls if isinstance(calls, list) else [calls]
    calls = [_parsed(call) if isinstance(call, str) else call for call in calls]
    for call in calls:
        if not isinstance(call, dict) or not isinstance(call.get("function", call), dict):
            raise RowError("unreadable tool calls", "a tool call is not a JSON object")
    message["tool_calls"] = calls


def _parsed(text: str) -> Any:
    """The value of a JSON text; the text itself where it is none."""
    if text.lstrip()[:1] not in ("[", "{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # also a number of thousands of digits
        return text


def _rows_of(columns: dict[str, Any]) -> Any:
    """Objects from an object of equally long lists; anything else as it is."""
    lists = list(columns.values())
    if not lists or not all(isinstance(one, list) for one in lists):
        return columns
    if len({len(one) for one in lists}) != 1:
        return columns
    return [dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)]
