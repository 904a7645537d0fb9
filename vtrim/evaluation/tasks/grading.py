"""One score for all replies of a rule: what a sweep sets against its speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

from vtrim.chat.read import read_rows
from vtrim.chat.skips import SkipLog
from vtrim.evaluation.prompts import Prompt
from vtrim.evaluation.tasks.asking import TaskPrompt
from vtrim.evaluation.tasks.own_rows import answer_of, is_right
from vtrim.evaluation.tasks.task import Score, Task

Grader = Callable[[Sequence[str]], float | None]
"""From the replies to all prompts, in order, their score; None where no answer is known."""


def grader(prompts: Sequence[Prompt], path: Path | None) -> Grader:
    """What scores replies: the tasks that ask, else the answers beside the prompts of a file."""
    asked = [prompt for prompt in prompts if isinstance(prompt, TaskPrompt)]
    if asked:
        return lambda replies: _by_tasks(asked, replies)
    if path is None:
        return lambda _replies: None
    wanted = {prompt.origin for prompt in prompts}
    rows = read_rows(path, skipped=SkipLog())
    known = {origin: answer_of(row) for origin, row in rows if origin in wanted}
    answers = [known.get(prompt.origin) for prompt in prompts]
    return lambda replies: share_right(replies, answers)


def share_right(replies: Sequence[str], answers: Sequence[tuple[str, ...] | None]) -> float | None:
    """Share of the replies that give one of their answers; None where no answer is known."""
    pairs = [(r, a) for r, a in zip(replies, answers, strict=True) if a is not None]
    if not pairs:
        return None
    return sum(any(is_right(reply, one) for one in right) for reply, right in pairs) / len(pairs)


def _by_tasks(prompts: Sequence[TaskPrompt], replies: Sequence[str]) -> float | None:
    """Mean of the tasks' metrics."""
    scores: dict[str, tuple[Task, list[Score]]] = {}
    for prompt, reply in zip(prompts, replies, strict=True):
        score = prompt.score(prompt.reply_text(reply))
        if score is not None:
            scores.setdefault(prompt.task.name, (prompt.task, []))[1].append(score)
    totals = [task.total(of_task) for task, of_task in scores.values()]
    known = [total for total in totals if total is not None]
    return mean(known) if known else None
