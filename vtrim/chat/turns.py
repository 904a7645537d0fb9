"""One turn of a conversation in its normal form: one of four roles, and text as content."""

from __future__ import annotations

import json
from typing import Any

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
_TEXT_PARTS = ("text", "input_text", "output_text")


class RowError(Exception):
    """A row that cannot be used; ``reason`` is the heading it is counted under."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


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
    return [message_of(turn) for turn in turns]


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
    name = turn.get("role", turn.get("from"))
    role = ROLES.get(name.lower()) if isinstance(name, str) else None
    if role is None:
        raise RowError("unknown role", f"role {name!r} is none of user, assistant, system, tool")
    content = first_of(turn, "content", "value", "text")
    if role == "tool" and isinstance(content, dict):
        content = json.dumps(content, ensure_ascii=False)
    message = {"role": role, "content": text_of(content)}
    message.update((key, turn[key]) for key in _EXTRA_KEYS if turn.get(key) is not None)
    _complete_calls(message, turn)
    return message


def text_of(content: Any) -> str:
    """The text of a content: a string, a list of parts (text parts joined) or null (empty).

    Raises:
        RowError: it is anything else.
    """
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, list):
        return "".join(_part(part) for part in content)
    raise RowError("unreadable content", f"content is {type(content).__name__}, not text")


def with_system(messages: list[Message], system: Any) -> list[Message]:
    """The messages behind a row's own system text, unless they begin with one."""
    if not isinstance(system, str) or not system:
        return messages
    if messages and messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": system}, *messages]


def without_nulls(value: Any) -> Any:
    """The same without keys that hold null, at any depth.

    Arrow gives every object of a column the keys of all of them, and fills the absent ones with
    null, which a template would print.
    """
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list) and not isinstance(value[0] if value else 0, (int, float, str)):
        return [without_nulls(one) for one in value]
    return value


def check_unicode(*values: Any) -> None:
    """Refuses half of a surrogate pair (JSON can spell one, UTF-8 cannot hold it).

    Raises:
        RowError: a text holds one.
    """
    try:
        for value in values:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            text.encode()
    except UnicodeEncodeError as error:
        raise RowError("unreadable content", "half of a surrogate pair") from error


def first_of(row: dict[str, Any], *names: str) -> Any:
    """The first of the columns that is there and not null; None without any."""
    return next((row[name] for name in names if row.get(name) is not None), None)


def _complete_calls(message: Message, turn: dict[str, Any]) -> None:
    """Calls given as JSON text, or in the older ``function_call``, become ``tool_calls``."""
    calls = message.get("tool_calls")
    if isinstance(calls, str):
        message["tool_calls"] = _parsed(calls)
    elif isinstance(calls, list):
        message["tool_calls"] = [_parsed(call) if isinstance(call, str) else call for call in calls]
    older = turn.get("function_call")
    if not calls and isinstance(older, dict) and message["role"] == "assistant":
        message["tool_calls"] = [{"type": "function", "function": older}]
    if "tool_calls" in message and not message["tool_calls"]:
        del message["tool_calls"]


def _parsed(text: str) -> Any:
    """The value of a JSON text; the text itself where it is none."""
    if text.lstrip()[:1] not in ("[", "{"):
        return text
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text


def _rows_of(columns: dict[str, Any]) -> Any:
    """Objects from an object of equally long lists; anything else as it is."""
    lists = list(columns.values())
    if not lists or not all(isinstance(one, list) for one in lists):
        return columns
    if len({len(one) for one in lists}) != 1:
        return columns
    return [dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)]


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        text = part.get("text") if part.get("type", "text") in _TEXT_PARTS else None
        return text if isinstance(text, str) else ""
    raise RowError("unreadable content", "a content part is neither text nor an object")
