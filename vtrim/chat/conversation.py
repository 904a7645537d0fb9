"""One conversation in its normal form, whatever the row it came from looked like."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

HELDOUT_PERCENT = 5

Message = dict[str, Any]
Kind = Literal["messages", "sharegpt", "recorded"]

# Spellings of the four roles in published chat data, lower case.
ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(
        ("assistant", "gpt", "chatgpt", "bing", "bard", "model", "function_call"), "assistant"
    ),
    **dict.fromkeys(
        ("tool", "observation", "function", "function_response", "tool_response", "ipython"), "tool"
    ),
}

# Keys of a message that templates read besides role and content.
_EXTRA_KEYS = ("name", "reasoning", "reasoning_content", "thinking", "tool_call_id", "tool_calls")


class RowError(Exception):
    """A row that cannot be used; ``reason`` is the heading it is counted under."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a row stands: file and line, counted from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Token ids as a target emitted them. ids: [T]; mask: [T] True on reply tokens."""

    ids: npt.NDArray[np.int64]
    mask: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Conversation:
    """Messages with the roles system, user, assistant and tool, and text as content.

    recorded: ids and mask that stand in for rendering; tools: JSON schemas for the template.
    """

    messages: tuple[Message, ...]
    origin: Origin
    kind: Kind
    source: str | None = None
    recorded: Recorded | None = None
    tools: tuple[Any, ...] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether roles and texts are all there is: no tools, calls, names or recorded ids."""
        return (
            self.recorded is None
            and self.tools is None
            and all(len(message) == 2 for message in self.messages)
        )

    @property
    def replies(self) -> list[str]:
        """The texts of the assistant turns."""
        return [turn["content"] for turn in self.messages if turn["role"] == "assistant"]


def conversation_of(row: Any, origin: Origin) -> Conversation:
    """The conversation in a parsed JSON row; ``messages`` wins over ``conversations``.

    Raises:
        RowError: the row holds none, or a role or content that is not known.
    """
    if not isinstance(row, dict):
        raise RowError("no messages", "the row is not a JSON object")
    turns = row.get("messages")
    kind: Kind = "messages"
    if turns is None:
        turns, kind = row.get("conversations"), "sharegpt"
    recorded = _recorded(row)
    if recorded is not None:
        turns, kind = turns or [], "recorded"
    if not isinstance(turns, list):
        raise RowError("no messages", "neither `messages` nor `conversations` holds a list")
    messages = [_message(turn) for turn in turns]
    system = row.get("system")
    if kind == "sharegpt" and isinstance(system, str) and system:
        messages = _with_system(messages, system)
    source = row.get("source")
    return Conversation(
        messages=tuple(messages),
        origin=origin,
        kind=kind,
        source=source if isinstance(source, str) else None,
        recorded=recorded,
        tools=_tools(row.get("tools")),
    )


def is_heldout(conversation: Conversation) -> bool:
    """Whether a conversation belongs to the held-out 5 %: a hash of its content decides.

    Roles and texts are hashed (recorded ids where a row has no messages), so the answer depends
    neither on the order of rows nor on the tokenizer.
    """
    content: Any = [(message["role"], message["content"]) for message in conversation.messages]
    if not content and conversation.recorded is not None:
        content = [conversation.recorded.ids.tolist(), conversation.recorded.mask.tolist()]
    digest = hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).digest()
    return int.from_bytes(digest[:8], "big") % 100 < HELDOUT_PERCENT


def _message(turn: Any) -> Message:
    """One turn with its role in one of the four spellings and its content as text."""
    if not isinstance(turn, dict):
        raise RowError("no messages", "a turn is not a JSON object")
    name = turn.get("role", turn.get("from"))
    role = ROLES.get(name.lower()) if isinstance(name, str) else None
    if role is None:
        raise RowError("unknown role", f"role {name!r} is none of user, assistant, system, tool")
    message = {"role": role, "content": _text(turn.get("content", turn.get("value")))}
    if len(turn) > 2:
        message.update((key, turn[key]) for key in _EXTRA_KEYS if turn.get(key) is not None)
    return message


def _with_system(messages: list[Message], system: str) -> list[Message]:
    """The messages behind the row's own `system` text, unless they begin with one."""
    if messages and messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": system}, *messages]


def _text(content: Any) -> str:
    """The text of a content: a string, a list of parts (text parts joined) or null (empty)."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, list):
        return "".join(_part(part) for part in content)
    raise RowError("unreadable content", f"content is {type(content).__name__}, not text")


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        text = part.get("text") if part.get("type", "text") == "text" else None
        return text if isinstance(text, str) else ""
    raise RowError("unreadable content", "a content part is neither text nor an object")


def _recorded(row: dict[str, Any]) -> Recorded | None:
    """Recorded ids and mask, where a row has both."""
    ids, mask = row.get("input_ids"), row.get("loss_mask")
    if ids is None or mask is None:
        return None
    try:
        arrays = np.asarray(ids, dtype=np.int64), np.asarray(mask, dtype=np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise RowError("bad recorded ids", "input_ids or loss_mask holds no integers") from error
    if arrays[0].ndim != 1 or arrays[0].shape != arrays[1].shape:
        detail = f"input_ids has shape {arrays[0].shape}, loss_mask {arrays[1].shape}"
        raise RowError("bad recorded ids", detail)
    if arrays[0].size and arrays[0].min() < 0:
        raise RowError("bad recorded ids", "input_ids holds a negative id")
    return Recorded(arrays[0], arrays[1] != 0)


def _tools(tools: Any) -> tuple[Any, ...] | None:
    """The row's tools: a list, or the JSON text of one."""
    if isinstance(tools, str) and tools.strip():
        try:
            tools = json.loads(tools)
        except json.JSONDecodeError as error:
            raise RowError("unreadable tools", f"`tools` is not JSON ({error})") from error
    if not tools:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RowError("unreadable tools", "`tools` is not a list of JSON objects")
    return tuple(tools)
