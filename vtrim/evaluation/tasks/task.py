"""What a task is: rows of a data set become questions, a reply to one becomes a score."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from vtrim.chat.conversation import Message, Origin, RowError

Row = Mapping[str, Any]


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


class Task(Protocol):
    """One task, without its data.

    name: what ``--task`` calls it. metric: the name of ``Score.value``'s mean (``accuracy``,
    ``pass@1``, ``f1``); None: nothing is scored. max_new_tokens: its usual longest reply. stop:
    texts that end a reply. licence: of the data. runs_code: whether scoring runs what the model
    wrote.
    """

    name: str
    title: str
    licence: str
    metric: str | None
    max_new_tokens: int
    stop: tuple[str, ...]
    runs_code: bool

    def questions(
        self, rows: Iterable[tuple[Origin, Any]]
    ) -> Iterator[tuple[Origin, Question | RowError]]:
        """The question in each row, or why it has none (a missing answer has one)."""
        ...

    def score(self, question: Question, reply: str) -> Score | None:
        """How good a reply is; None where the question has no recorded answer."""
        ...

    def total(self, scores: Iterable[Score]) -> float | None:
        """The metric over several replies; None of nothing."""
        ...
