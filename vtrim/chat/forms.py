"""The forms in which published rows hold a conversation, told apart row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Literal, NamedTuple

from vtrim.chat.columns import listed, mapped_messages
from vtrim.chat.json_array import WRAP
from vtrim.chat.turns import (
    Message,
    RowError,
    first_of,
    message_of,
    messages_of,
    text_of,
    with_system,
)

Kind = Literal[
    "messages",
    "sharegpt",
    "alpaca",
    "prompt-completion",
    "mapped",
    "text",
    "recorded",
    "tree",
]

# Columns that decide the form of a row, and those that go with them.
LEADING = ("messages", "conversations", "conversation", "instruction", "prompt", "text", "replies")
BESIDE = (
    *("completion", "response", "output", "input", "history", "system", "tools", "role"),
    *("input_ids", "loss_mask", "assistant_masks", "completion_mask", "labels"),
)
_SHAREGPT = ("conversations", "conversation")
# Columns that are plainly a question and its answer: suggested, never taken unasked.
_PAIRS = (
    ("question", "answer"),
    ("user_query", "chatgpt_response"),
    ("query", "response"),
    ("problem", "solution"),
    ("input", "output"),
)


class Form(NamedTuple):
    """What a row holds. context: leading messages whose replies are not learned.

    text: the conversation as rendered already. group: what decides the held-out split instead of
    the content.
    """

    kind: Kind
    messages: list[Message]
    context: int = 0
    text: str | None = None
    group: str | None = None


def forms_of(row: dict[str, Any], columns: Mapping[str, str]) -> list[Form]:
    """The conversations in a row: one, or several where it holds a tree of messages.

    Raises:
        RowError: there is none, or a role or content is not known.
    """
    if columns:
        return [Form("mapped", mapped_messages(row, columns))]
    if row.get("messages"):
        return [Form("messages", messages_of(row["messages"], "messages"))]
    for name in _SHAREGPT:
        if row.get(name):
            return [Form("sharegpt", with_system(messages_of(row[name], name), row.get("system")))]
    root = row["prompt"] if isinstance(row.get("prompt"), dict) else row
    if "role" in root and isinstance(root.get("replies"), list):
        return _tree(root)
    if row.get("prompt") is not None:
        return [_prompt_completion(row)]
    if row.get("instruction") is not None:
        return [Form("alpaca", _alpaca(row))]
    if isinstance(row.get("text"), str):
        return [Form("text", [], text=row["text"])]
    for name in ("messages", *_SHAREGPT):  # empty, beside no other form
        if row.get(name) is not None:
            return [Form("messages", messages_of(row[name], name))]
    raise _nothing(row)


def _nothing(row: dict[str, Any]) -> RowError:
    if {"role", "from"} & row.keys() and {"content", "value"} & row.keys():
        return RowError("no messages", f"the row is one turn; {WRAP}")
    pair = next((pair for pair in _PAIRS if pair[0] in row and pair[1] in row), ("..", ".."))
    remedy = f"name them by --map user={pair[0]},assistant={pair[1]}"
    return RowError("no messages", f"columns {listed(row)}: {remedy}")


def _alpaca(row: dict[str, Any]) -> list[Message]:
    """Instruction and input, a blank line between, then the answer; earlier pairs before them."""
    answer = first_of(row, "output", "response", "completion")
    if answer is None:
        raise RowError("no messages", "an `instruction` without `output` or `response`")
    question = "\n\n".join(filter(None, (text_of(row["instruction"]), text_of(row.get("input")))))
    messages = []
    for pair in (*_history(row.get("history")), (question, answer)):
        messages.append({"role": "user", "content": text_of(pair[0])})
        messages.append({"role": "assistant", "content": text_of(pair[1])})
    return with_system(messages, row.get("system"))


def _history(history: Any) -> list[Any]:
    pairs = history or []
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list) and len(pair) == 2 for pair in pairs
    ):
        raise RowError("unreadable content", "`history` is no list of [question, answer] pairs")
    return pairs


def _prompt_completion(row: dict[str, Any]) -> Form:
    """A prompt and its completion, each a text or turns; only the completion is learned."""
    answer = first_of(row, "completion", "response")
    prompt = _turns(row["prompt"], "user", "prompt")
    if answer is None and isinstance(row["prompt"], str):
        raise RowError("no messages", "a `prompt` without `completion` or `response`")
    reply = [] if answer is None else _turns(answer, "assistant", "completion")
    messages = with_system([*prompt, *reply], row.get("system"))
    context = len(messages) - len(reply)
    replies_ahead = any(turn["role"] == "assistant" for turn in messages[:context])
    return Form("prompt-completion", messages, context if replies_ahead else 0)


def _turns(value: Any, role: str, column: str) -> list[Message]:
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return [message_of(value)] if isinstance(value, dict) else messages_of(value, column)


def without_unlearned(form: Form) -> list[Form]:
    """The same conversation so that no reply of ``weight`` 0 is learned: one form a run of others.

    What stands before a run is context, as in a tree of messages.

    Raises:
        RowError: no reply is left.
    """
    messages = form.messages
    if not any("weight" in message for message in messages):
        return [form]
    replies = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    learned = [i for i in replies if i >= form.context and "weight" not in messages[i]]
    if not learned:
        raise RowError("no reply", "every reply has weight 0")
    plain = [{key: message[key] for key in message if key != "weight"} for message in messages]
    runs = [list(run) for kept, run in groupby(replies, set(learned).__contains__) if kept]
    group = form.group
    if group is None and len(runs) > 1:  # they stay on one side of the held-out split
        group = "\n".join(message["content"] for message in plain)
    return [
        form._replace(
            messages=plain[: run[-1] + 1],
            context=run[0] if run[0] > replies[0] else 0,
            group=group,
        )
        for run in runs
    ]


def _tree(root: dict[str, Any]) -> list[Form]:
    """One conversation a path from the first message to a last reply.

    A reply that several paths share is learned in the first of them and is context in the others,
    so each is learned exactly once. The first message decides the held-out split for all.
    """
    forms = []
    learned: set[int] = set()
    for path in _paths(root):
        replies = [place for place, (_, turn) in enumerate(path) if turn["role"] == "assistant"]
        fresh = [place for place in replies if id(path[place][0]) not in learned]
        if not fresh:
            continue
        learned.update(id(path[place][0]) for place in fresh)
        messages = [message for _, message in path[: replies[-1] + 1]]
        context = fresh[0] if fresh[0] > replies[0] else 0
        forms.append(Form("tree", messages, context, group=messages[0]["content"]))
    if not forms:
        raise RowError("no reply", "a tree of messages without an assistant's")
    return forms


def _paths(root: dict[str, Any]) -> Iterator[list[tuple[Any, Message]]]:
    """(node, message) from the root to each leaf, in the order of the file."""
    stack: list[tuple[Any, list[tuple[Any, Message]]]] = [(root, [])]
    while stack:
        node, above = stack.pop()
        if not isinstance(node, dict):
            raise RowError("no messages", "a message of a tree is not a JSON object")
        path = [*above, (node, message_of(node))]
        replies = node.get("replies") or []
        if not isinstance(replies, list):
            raise RowError("no messages", "`replies` of a tree holds no list")
        if not replies:
            yield path
        stack.extend((reply, path) for reply in reversed(replies))
