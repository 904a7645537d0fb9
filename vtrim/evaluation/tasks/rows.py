"""What tasks read from a row of their data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtrim.chat.conversation import Message, RowError
from vtrim.evaluation.tasks.task import Question

NO_ANSWER = "no answer"
NO_QUESTION = "no question"


def unscored(_question: Question, _reply: str) -> None:
    """The judge of tasks that need one: a person, or another model."""


def user(text: str) -> tuple[Message, ...]:
    """One user turn."""
    return ({"role": "user", "content": text},)


def text_at(row: Any, *names: str) -> str:
    """The text under the first of these keys that the row has.

    Raises:
        RowError: it has none of them, or no text there.
    """
    if not isinstance(row, Mapping):
        raise RowError(NO_QUESTION, f"the row is no JSON object; it needs `{names[0]}`")
    for name in names:
        value = row.get(name)
        if isinstance(value, str) and value.strip():
            return value
    raise RowError(NO_QUESTION, f"no text under `{'` or `'.join(names)}`")


def answer_at(row: Mapping[str, Any], *names: str) -> str:
    """The recorded answer as text.

    Raises:
        RowError: the row has none.
    """
    for name in names:
        value = row.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return repr(value) if isinstance(value, float) else str(value)
        if isinstance(value, str) and value.strip():
            return value
    raise RowError(NO_ANSWER, f"nothing under `{'` or `'.join(names)}`")
