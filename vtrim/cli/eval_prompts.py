"""The prompts of ``vtrim eval``: held-out rows, a file, or the questions of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import fingerprint_json
from vtrim.chat.skips import SkipLog
from vtrim.cli import common

if TYPE_CHECKING:
    from vtrim.cli.eval_call import EvalCall
    from vtrim.evaluation.pairing import TargetSource
    from vtrim.evaluation.prompts import Prompt
    from vtrim.evaluation.tasks.asking import Asker, TaskPrompt

Writer = Callable[["TaskPrompt"], str]
"""Gives the reply before a later turn, e.g. by plain greedy decoding."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Prompts, and what was skipped. facts: of the provenance, where prompts are of tasks.

    askers: by task, with the first turns; ``prompts`` holds no later turn before ``whole``.
    """

    prompts: Sequence[Prompt]
    skipped: SkipLog
    facts: Mapping[str, Any] = field(default_factory=dict)
    askers: Sequence[tuple[Asker, Sequence[TaskPrompt]]] = ()

    def whole(self, source: TargetSource, longest: int, write: Writer) -> Found:
        """With later turns behind replies; ``write`` gives those that no one has written yet.

        The run folder keeps them, so that every draft, rule and engine sees the same prompts.
        longest: tokens of a reply to a prompt without a limit of its own.
        """
        total = sum(len(one.question.later) for _, first in self.askers for one in first)
        if not total:
            return self
        from vtrim.evaluation.tasks.earlier import FILE, EarlierReplies

        earlier = EarlierReplies(
            path=source.run.root / FILE,
            target=(source.name, fingerprint_json(source.config)),
            longest=longest,
        )
        prompts: list[Prompt] = []
        with common.progress("writing the replies before later turns", total) as advance:

            def reply(prompt: TaskPrompt) -> str:
                text = earlier.reply(prompt, write)
                advance(1)
                return text

            for asker, first in self.askers:
                prompts += asker.with_later_turns(first, reply)
        return replace(self, prompts=prompts, skipped=_skipped(self.askers))


def find_prompts(call: EvalCall, source: TargetSource, context_length: int) -> Found:
    """The prompts that leave room for a reply; of tasks the first turns.

    Raises:
        InputError: they cannot be found or read, or none can be answered.
    """
    from vtrim.chat.render import Renderer
    from vtrim.evaluation.prompts import PromptSource

    renderer = Renderer(source.tokenizer)
    if call.task:
        return _of_tasks(call, renderer, context_length)
    reader = PromptSource(renderer=renderer, context_length=context_length, limit=call.num_prompts)
    prompts = reader.from_file(call.prompts) if call.prompts else reader.heldout(call.run)
    return Found(prompts=prompts, skipped=reader.skipped)


def _of_tasks(call: EvalCall, renderer: Any, context_length: int) -> Found:
    from vtrim.evaluation.tasks.asking import asker
    from vtrim.evaluation.tasks.sources import find_data
    from vtrim.evaluation.tasks.table import find_task, parse_task

    askers, facts = [], []
    for typed in call.task:
        name, number = parse_task(typed)
        limit = call.num_prompts if number is None else number
        one = asker(find_task(name), renderer, context_length, limit, call.max_new_tokens)
        data = find_data(name, call.task_data, offline=call.offline)
        first = one.first_turns(data)
        askers.append((one, first))
        facts.append({"task": name, "questions": len(first), "data": data.describe()})
    return Found(
        prompts=[prompt for _, first in askers for prompt in first],
        skipped=_skipped(askers),
        askers=askers,
        facts={
            "prompts": f"--task {' --task '.join(call.task)}",
            "prompts_fingerprint": fingerprint_json(facts),
            "tasks": facts,
        },
    )


def _skipped(askers: Sequence[tuple[Asker, Sequence[TaskPrompt]]]) -> SkipLog:
    """What the tasks have skipped."""
    skipped = SkipLog()
    for asker, _ in askers:
        skipped = skipped.merge(asker.source.skipped)
    return skipped
