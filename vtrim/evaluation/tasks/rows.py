"""A task whose rows hold one question each, and what such tasks read from a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vtrim.chat.conversation import Message, Origin, RowError
from vtrim.chat.turns import check_unicode
from vtrim.evaluation.tasks.task import Question, Score

NO_ANSWER = "no answer"
NO_QUESTION = "no question"


@dataclass(frozen=True, kw_only=True)
class RowTask:
    """A task by two functions; its metric is the mean of the scores.

    ask: the question in a row (raises ``RowError`` where there is none); judge: the score of a
    reply, None where nothing is recorded to compare with. Other fields as in ``Task``.
    """

    name: str
    title: str
    licence: str
    metric: str | None
    max_new_tokens: int
    ask: Callable[[Any, Origin], Question]
    judge: Callable[[Question, str], Score | None]
    stop: tuple[str, ...] = ()
    runs_code: bool = False

    def questions(
        self, rows: Iterable[tuple[Origin, Any]]
    ) -> Iterator[tuple[Origin, Question | RowError]]:
        """The question in each row, or why it has none."""
        for origin, row in rows:
            try:
                question = self.ask(row, origin)
                check_unicode([question.messages, question.later, question.tools])
                yield origin, question
            except RowError as error:
                yield origin, error

    def score(self, question: Question, reply: str) -> Score | None:
        """How good a reply is; None where the question has no recorded answer."""
        return self.judge(question, reply)

    def total(self, scores: Iterable[Score]) -> float | None:
        """Mean of the values; None of nothing."""
        return mean_value(scores)


def mean_value(scores: Iterable[Score]) -> float | None:
    """Mean of the scores' values; None of nothing."""
    values = [score.value for score in scores]
    return sum(values) / len(values) if values else None


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
