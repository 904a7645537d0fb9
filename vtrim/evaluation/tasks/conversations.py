"""MT-Bench, KoMT-Bench and Spec-Bench: conversations whose replies only a judge could score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtrim.chat.conversation import Origin, RowError
from vtrim.evaluation.tasks.rows import NO_QUESTION, unscored, user
from vtrim.evaluation.tasks.task import Question, Task

_MT_BENCH_PARTS = frozenset(
    ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
)
_MULTI_TURN = "multi-turn"  # Spec-Bench's own name for its share of MT-Bench


def _turns(row: Any, origin: Origin) -> Question:
    """A row with the user's texts in ``turns`` (FastChat) or ``prompt`` (the hub's copies)."""
    if not isinstance(row, Mapping):
        raise RowError(NO_QUESTION, "the row is no JSON object; it needs `turns`")
    turns = row.get("turns") or row.get("prompt")
    texts = [turns] if isinstance(turns, str) else turns
    if not isinstance(texts, list) or not texts:
        raise RowError(NO_QUESTION, "no list of texts under `turns` or `prompt`")
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise RowError(NO_QUESTION, "a turn is no text, or an empty one")
    group = row.get("category")
    return Question(
        origin=origin,
        messages=user(texts[0]),
        later=tuple(texts[1:]),
        group=group if isinstance(group, str) else "",
    )


def _spec_bench(row: Any, origin: Origin) -> Question:
    question = _turns(row, origin)
    group = _MULTI_TURN if question.group in _MT_BENCH_PARTS else question.group
    return Question(origin=origin, messages=question.messages, later=question.later, group=group)


MT_BENCH = Task(
    name="mt-bench",
    title="MT-Bench, 80 conversations of two turns",
    licence="Apache-2.0",
    metric=None,
    max_new_tokens=1024,
    ask=_turns,
    score=unscored,
)
KOMT = Task(
    name="komt",
    title="KoMT-Bench, MT-Bench in Korean",
    licence="LGPL-3.0",
    metric=None,
    max_new_tokens=1024,
    ask=_turns,
    score=unscored,
)
SPEC_BENCH = Task(
    name="spec-bench",
    title="Spec-Bench, 480 questions in six parts",
    licence="Apache-2.0",
    metric=None,
    max_new_tokens=1024,
    ask=_spec_bench,
    score=unscored,
)
