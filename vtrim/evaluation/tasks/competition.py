r"""MATH-500 and AIME: competition problems whose answer a reply puts into ``\boxed{}``.

Score as lm-evaluation-harness 0.4.13 has it for ``aime24`` and ``aime25``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from vtrim.chat.conversation import Origin
from vtrim.evaluation.tasks.latex import equivalent, final_answer
from vtrim.evaluation.tasks.rows import answer_at, text_at, user
from vtrim.evaluation.tasks.task import Question, Score, Task

_HOW = r"Please reason step by step, and put your final answer within \boxed{}."


def _ask(row: Any, origin: Origin, *, group: str = "") -> Question:
    text = text_at(row, "problem", "Problem", "question", "Question")
    subject = row.get(group) if isinstance(row, Mapping) else None
    return Question(
        origin=origin,
        messages=user(f"{text}\n{_HOW}"),
        answer=answer_at(row, "answer", "Answer").strip(),
        group=subject if isinstance(subject, str) else "",
    )


def _judge(question: Question, reply: str) -> Score:
    return Score(value=float(equivalent(final_answer(reply), question.answer)))


MATH500 = Task(
    name="math500",
    title="MATH-500, 500 competition problems of seven subjects",
    licence="MIT",
    metric="accuracy",
    max_new_tokens=2048,
    ask=partial(_ask, group="subject"),
    score=_judge,
)
AIME24 = Task(
    name="aime24",
    title="AIME 2024, 30 problems",
    licence="MIT",
    metric="accuracy",
    max_new_tokens=4096,
    ask=_ask,
    score=_judge,
)
AIME25 = Task(
    name="aime25",
    title="AIME 2025, 30 problems",
    licence="Apache-2.0",
    metric="accuracy",
    max_new_tokens=4096,
    ask=_ask,
    score=_judge,
)
