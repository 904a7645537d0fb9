"""What a task is: rows of a data set become questions, a reply to one becomes a score."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vtrim.chat.conversation import Message, Origin, RowError
from vtrim.chat.turns import check_unicode

Rows = Iterable[tuple[Origin, Any]]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked.

    messages: the turns before the reply. later: user turns that follow it, each asked behind the
    replies before it (MT-Bench). answer: what the scorer compares with; None where none is
    recorded. group: the part of the data set it is of (subject, category, language).
    """

    origin: Origin
    messages: tuple[Message, ...]
    later: tuple[str, ...] = ()
    tools: tuple[Any, ...] = ()
    answer: Any = None
    group: str = ""


@dataclass(frozen=True, kw_only=True)
class Score:
    """What a scorer says of one reply. value: of the task's metric, in [0, 1].

    parts: other values in [0, 1] by name (IFEval's four rules). counts: what a metric that is no
    mean of values is made of (true positives ...), summed over all replies before the ratio.
    """

    value: float
    parts: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)


def mean_value(scores: Iterable[Score]) -> float | None:
    """Mean of the scores' values; None of nothing."""
    values = [score.value for score in scores]
    return sum(values) / len(values) if values else None


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task, without its data.

    name: what ``--task`` calls it. licence: of the data. metric: what ``total`` is (``accuracy``,
    ``pass@1``, ``f1``); None: nothing is scored. max_new_tokens: its usual longest reply. ask: the
    question in a row (raises ``RowError`` where there is none). score: of a reply, None where
    nothing is recorded to compare with. total: the metric over several replies, None of nothing.
    arrange: rows as ``ask`` reads them, where answers stand apart from questions. stop: texts that
    end a reply. runs_code: whether scoring runs what the model wrote.
    """

    name: str
    title: str
    licence: str
    metric: str | None
    max_new_tokens: int
    ask: Callable[[Any, Origin], Question]
    score: Callable[[Question, str], Score | None]
    total: Callable[[Iterable[Score]], float | None] = mean_value
    arrange: Callable[[Rows], Rows] = iter
    stop: tuple[str, ...] = ()
    runs_code: bool = False

    def questions(self, rows: Rows) -> Iterator[tuple[Origin, Question | RowError]]:
        """The question in each row, or why it has none (a missing answer has one)."""
        for origin, row in self.arrange(rows):
            try:
                question = self.ask(row, origin)
                check_unicode([question.messages, question.later, question.tools])
                yield origin, question
            except RowError as error:
                yield origin, error
