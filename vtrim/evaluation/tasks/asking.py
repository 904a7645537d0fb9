"""Questions of a task as prompts, later turns behind replies that were written once for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vtrim.chat.conversation import Message, RowError
from vtrim.chat.render import Renderer
from vtrim.chat.template import TemplateRefusal
from vtrim.evaluation.prompts import Ids, Prompt, PromptSource
from vtrim.evaluation.tasks.rows import user
from vtrim.evaluation.tasks.sources import TaskData
from vtrim.evaluation.tasks.task import Question, Score, Task

Reply = Callable[["TaskPrompt"], str]
"""Writes the reply that stands before a later turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPrompt(Prompt):
    """A prompt that asks a task's question. messages: what it renders; turn: 0 is the first."""

    task: Task
    question: Question
    messages: tuple[Message, ...]
    turn: int = 0

    @property
    def is_last(self) -> bool:
        """Whether the question ends here, so that the reply is the one to score."""
        return self.turn == len(self.question.later)

    def reply_text(self, text: str) -> str:
        """A reply without the text that ended it."""
        ends = [text.find(stop) for stop in self.stop]
        return text[: min((end for end in ends if end >= 0), default=None)]

    def score(self, reply: str) -> Score | None:
        """How good a reply is; None where nothing is to be scored: the question goes on, say."""
        if self.task.metric is None or not self.is_last:
            return None
        return self.task.score(self.question, reply)


@dataclass(frozen=True, kw_only=True)
class Asker:
    """Asks the questions of one task.

    max_new_tokens: of each reply, None for the settings' own; source: renders, and knows limits and
    what was skipped.
    """

    task: Task
    source: PromptSource
    max_new_tokens: int | None

    def first_turns(self, data: TaskData) -> list[TaskPrompt]:
        """The first turns of as many questions as the source's limit, of each group in turn.

        Raises:
            InputError: the data cannot be read, or no question in it can be asked.
        """
        found: list[Question] = []
        for origin, question in self.task.questions(data.rows()):
            if isinstance(question, RowError):
                self.source.skipped.add(question.reason, origin, question.detail)
            else:
                found.append(question)
        ordered = list(in_turn(found))
        rows = ((q.origin, self._ids(q, q.messages)) for q in ordered)
        where = f"--task {self.task.name} ({', '.join(one.label for one in data.sources)})"
        prompts = self.source.first_usable(rows, where)
        by_origin = {question.origin: question for question in ordered}
        return [
            self._prompt(by_origin[p.origin], p.ids, by_origin[p.origin].messages, 0)
            for p in prompts
        ]

    def with_later_turns(self, first: Sequence[TaskPrompt], reply: Reply) -> list[TaskPrompt]:
        """The first turns, each with the turns behind it that leave room for a reply.

        reply: writes what stands between; the same for every rule that is measured.
        """
        return [prompt for one in first for prompt in (one, *self._later(one, reply))]

    def _later(self, prompt: TaskPrompt, reply: Reply) -> Iterator[TaskPrompt]:
        question = prompt.question
        for turn, text in enumerate(question.later, 1):
            answer: Message = {"role": "assistant", "content": reply(prompt)}
            messages = (*prompt.messages, answer, *user(text))
            ids = self.source.usable(question.origin, self._ids(question, messages))
            if ids is None:
                return
            prompt = self._prompt(question, ids, messages, turn)
            yield prompt

    def _ids(self, question: Question, messages: Sequence[Message]) -> Ids | RowError:
        try:
            return self.source.renderer.prompt_ids(messages, question.tools)
        except TemplateRefusal as error:
            return RowError("template refusal", str(error))

    def _prompt(
        self, question: Question, ids: tuple[int, ...], messages: tuple[Message, ...], turn: int
    ) -> TaskPrompt:
        return TaskPrompt(
            ids=ids,
            origin=question.origin,
            max_new_tokens=self.max_new_tokens,
            stop=self.task.stop,
            task=self.task,
            question=question,
            messages=messages,
            turn=turn,
        )


def asker(
    task: Task, renderer: Renderer, context_length: int, limit: int, max_new_tokens: int | None
) -> Asker:
    """What asks a task's questions. max_new_tokens: as typed, None for the task's own."""
    own = task.max_new_tokens if max_new_tokens is None else None
    source = PromptSource(renderer=renderer, context_length=context_length, limit=limit)
    return Asker(task=task, source=source, max_new_tokens=own)


def in_turn(questions: Sequence[Question]) -> Iterator[Question]:
    """The questions, one of each group after the other while there are any."""
    groups: dict[str, list[Question]] = {}
    for question in questions:
        groups.setdefault(question.group, []).append(question)
    for index in range(max(map(len, groups.values()), default=0)):
        yield from (group[index] for group in groups.values() if index < len(group))
