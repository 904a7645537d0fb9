"""One conversation in its normal form, whatever the row it came from looked like."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from vtrim.chat.columns import ABSENT, pick
from vtrim.chat.forms import Form, Kind, forms_of, without_unlearned
from vtrim.chat.json_array import WRAP
from vtrim.chat.recorded import Recorded, recorded_of
from vtrim.chat.turns import ROLES, Message, RowError, messages_of

__all__ = [
    "HELDOUT_PERCENT",
    "ROLES",
    "Conversation",
    "Kind",
    "Message",
    "Origin",
    "Recorded",
    "RowError",
    "conversation_key",
    "conversation_of",
    "conversations_of",
    "is_heldout",
]

HELDOUT_PERCENT = 5
_AS_MESSAGES: Mapping[str, str] = {}


class Origin(NamedTuple):
    """Where a row stands: file and line (of a table: row), counted from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Conversation:
    """Messages with the roles system, user, assistant and tool, and text as content.

    recorded: ids and mask that stand in for rendering; tools: JSON schemas for the template; text:
    the whole conversation where the row holds it already rendered; context: number of leading
    messages that are there to be read only, so that no reply among them is learned; group: what
    decides the held-out split in place of the content.
    """

    messages: tuple[Message, ...]
    origin: Origin
    kind: Kind
    source: str | None = None
    recorded: Recorded | None = None
    tools: tuple[Any, ...] | None = None
    text: str | None = None
    context: int = 0
    group: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether roles and texts are all there is, and every reply is to be learned."""
        return (
            self.recorded is None
            and self.text is None
            and self.tools is None
            and not self.context
            and all(len(message) == 2 for message in self.messages)
        )

    @property
    def replies(self) -> list[str]:
        """The texts of the assistant turns."""
        return [turn["content"] for turn in self.messages if turn["role"] == "assistant"]


def conversations_of(
    row: Any,
    origin: Origin,
    columns: Mapping[str, str] = _AS_MESSAGES,
    source_column: str = "source",
) -> Sequence[Conversation]:
    """The conversations in a parsed row: one, or several where it holds a tree of messages.

    The form is told from the columns, in this order: ``columns`` (from ``--map``), recorded ids,
    ``messages``, ``conversations``, a message tree, ``prompt``, ``instruction``, ``text``.

    Raises:
        RowError: the row holds none, or a role or content that is not known.
    """
    if isinstance(row, list):
        raise RowError("no messages", f"the row is a list; {WRAP}")
    if not isinstance(row, dict):
        raise RowError("no messages", "the row is not a JSON object")
    recorded = recorded_of(row) if "input_ids" in row and not columns else None
    if recorded is not None:
        forms = [_beside_ids(row)]  # the mask says what is learned
    else:
        forms = [one for form in forms_of(row, columns) for one in without_unlearned(form)]
    tools = tools_of(row["tools"]) if "tools" in row else None
    source = pick(row, source_column)
    if source is ABSENT:
        source = None
    if source is not None and source.__class__ is not str:
        source = str(source)
    return [
        Conversation(
            messages=tuple(form.messages),
            origin=origin,
            kind=form.kind,
            source=source,
            recorded=recorded,
            tools=tools,
            text=form.text,
            context=form.context,
            group=form.group,
        )
        for form in forms
    ]


def conversation_of(row: Any, origin: Origin) -> Conversation:
    """The (first) conversation in a parsed row, its form told from its columns.

    Raises:
        RowError: the row holds none, or a role or content that is not known.
    """
    return conversations_of(row, origin)[0]


def is_heldout(conversation: Conversation) -> bool:
    """Whether a conversation belongs to the held-out 5 %: a hash of its content decides.

    Roles and texts are hashed (recorded ids where a row has no messages), so the answer depends
    neither on the order of rows nor on the tokenizer. The conversations of one tree stay together.
    """
    if conversation.group is not None:
        digest = hashlib.sha256(conversation.group.encode()).digest()
    else:
        digest = _digest(conversation)
    return int.from_bytes(digest[:8], "big") % 100 < HELDOUT_PERCENT


def conversation_key(conversation: Conversation) -> int:
    """A number below 2^63 that stands for the content: equal for equal conversations.

    Unlike the held-out split it tells apart what roles and texts do not: calls, tools, context.
    """
    digest = _digest(conversation)
    if not conversation.is_plain:
        digest = hashlib.sha256(digest + _beside_texts(conversation)).digest()
    return int.from_bytes(digest[8:16], "big") >> 1


def tools_of(tools: Any) -> tuple[Any, ...] | None:
    """The row's tools: a list, or the JSON text of one.

    Raises:
        RowError: they are neither.
    """
    if isinstance(tools, str) and tools.strip():
        try:
            tools = json.loads(tools)
        except (ValueError, RecursionError) as error:
            raise RowError("unreadable tools", f"`tools` is not JSON ({error})") from error
    if not tools:
        return None
    if isinstance(tools, list):
        tools = [_tool(tool) for tool in tools]
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RowError("unreadable tools", "`tools` is not a list of JSON objects")
    return tuple(tools)


def _tool(tool: Any) -> Any:
    """A tool, parsed where it is the JSON text of one."""
    if not isinstance(tool, str):
        return tool
    try:
        return json.loads(tool)
    except (ValueError, RecursionError):
        return tool


def _beside_ids(row: dict[str, Any]) -> Form:
    """The turns beside recorded ids, if there are readable ones: they tell the held-out split."""
    name = next((one for one in ("messages", "conversations") if row.get(one)), None)
    try:
        return Form("recorded", [] if name is None else messages_of(row[name], name))
    except RowError:
        return Form("recorded", [])


def _beside_texts(conversation: Conversation) -> bytes:
    """What makes the tokens of a conversation besides its roles and texts."""
    more = [
        {key: turn[key] for key in turn if key not in ("role", "content")}
        for turn in conversation.messages
    ]
    ids, mask = b"", b""
    if conversation.recorded is not None:
        ids, mask = conversation.recorded.ids.tobytes(), conversation.recorded.mask.tobytes()
    rest = [more, conversation.tools, conversation.context, len(ids)]
    return json.dumps(rest, ensure_ascii=False).encode() + ids + mask


def _digest(conversation: Conversation) -> bytes:
    """SHA-256 of the JSON of roles and texts; of the text or the recorded ids without turns."""
    if conversation.messages:
        turns = [
            f'["{turn["role"]}", {encode_basestring(turn["content"])}]'
            for turn in conversation.messages
        ]
        content = f"[{', '.join(turns)}]"
    elif conversation.recorded is not None:
        recorded = conversation.recorded
        content = json.dumps([recorded.ids.tolist(), recorded.mask.tolist()])
    else:
        content = json.dumps(conversation.text or [], ensure_ascii=False)
    return hashlib.sha256(content.encode()).digest()
