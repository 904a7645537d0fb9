"""Any file of questions, with answers or without: numbers are compared as numbers, texts as words.

Rows are what ``--prompts`` reads: conversations, ``question``, ``instruction``, ``turns``, or
``prompt``, which is a user's turn here; the answer stands under ``answer``, ``answers`` (any of
them is right) or ``std_answer``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vtrim.chat.conversation import Origin, RowError
from vtrim.chat.read import check_text
from vtrim.evaluation.prompts import asked_in, before_last_reply
from vtrim.evaluation.tasks.numbers import MARK, is_number, last_number
from vtrim.evaluation.tasks.rows import NO_QUESTION
from vtrim.evaluation.tasks.task import Question, Score, Task

_SPACES = re.compile(r"\s+")


def _ask(row: Any, origin: Origin) -> Question:
    asked = {"question": row["prompt"]} if _has_prompt(row) else row
    conversation = asked_in(asked, origin)
    check_text(conversation)
    messages = tuple(before_last_reply(conversation.messages))
    if not messages or not messages[-1]["content"].strip():
        raise RowError(NO_QUESTION, "its last turn is empty")
    group = row.get("category") or row.get("source") if isinstance(row, Mapping) else None
    turns = row.get("turns") if isinstance(row, Mapping) else None
    later = turns[1:] if isinstance(turns, list) else []
    return Question(
        origin=origin,
        messages=messages,
        later=tuple(text for text in later if isinstance(text, str)),
        tools=conversation.tools or (),
        answer=answer_of(row),
        group=group if isinstance(group, str) else "",
    )


def _has_prompt(row: Any) -> bool:
    return isinstance(row, Mapping) and isinstance(row.get("prompt"), str)


def answer_of(row: Any) -> tuple[str, ...] | None:
    """The answers that count as right; None where the row records none.

    Of a text with GSM8K's mark only what stands behind it counts.
    """
    if not isinstance(row, Mapping):
        return None
    for name in ("answer", "answers", "std_answer"):
        recorded = row.get(name)
        listed = recorded if isinstance(recorded, list) else [recorded]
        texts = [text for text in map(_as_text, listed) if text]
        if texts:
            return tuple(texts)
    return None


def _as_text(recorded: Any) -> str:
    if isinstance(recorded, int | float) and not isinstance(recorded, bool):
        return str(recorded)
    return recorded.rpartition(MARK)[2].strip() if isinstance(recorded, str) else ""


def _judge(question: Question, reply: str) -> Score | None:
    if question.answer is None:
        return None
    return Score(value=float(any(is_right(reply, answer) for answer in question.answer)))


def is_right(reply: str, answer: str) -> bool:
    """Whether a reply gives the answer.

    A number must be the reply's last one, in value. A text must stand in the reply as whole words,
    case and spaces left aside.
    """
    if is_number(answer):
        found = last_number(reply)
        return found is not None and found == last_number(answer)
    words = re.escape(_plain(answer))
    return re.search(rf"(?<!\w){words}(?!\w)", _plain(reply)) is not None


def _plain(text: str) -> str:
    return _SPACES.sub(" ", text).strip().casefold()


JSONL = Task(
    name="jsonl",
    title="A file of yours: any rows with questions, scored where they have answers",
    licence="the file's own",
    metric="accuracy",
    max_new_tokens=256,
    ask=_ask,
    score=_judge,
)
