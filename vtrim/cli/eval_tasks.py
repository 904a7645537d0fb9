"""``--task``: benchmarks in place of a file of prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vtrim.errors import OptionError

if TYPE_CHECKING:
    from vtrim.cli.eval_call import EvalCall
    from vtrim.decoding.engine import Engine
    from vtrim.decoding.generation import Generation, GenerationSettings
    from vtrim.evaluation.prompts import Prompt
    from vtrim.evaluation.tasks.asking import TaskPrompt


def check_tasks(call: EvalCall) -> None:
    """Refuses tasks that are unknown or cannot be scored as asked; no data is looked for.

    Raises:
        OptionError: says which option does not go with which.
        InputError: there is no such file or folder.
    """
    if not (call.task or call.task_data or call.allow_code_execution):
        return
    from vtrim.evaluation.tasks.sources import check_given
    from vtrim.evaluation.tasks.table import find_task, parse_task

    names = [parse_task(typed)[0] for typed in call.task]
    tasks = [find_task(name) for name in names]
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"--task {name}: is given twice.")
    if names and call.prompts is not None:
        raise OptionError(f"--task {names[0]}: stands beside --prompts; give one of them.")
    if call.task_data is not None and not names:
        raise OptionError(f"--task-data {call.task_data}: only with --task NAME.")
    if "jsonl" in names and call.task_data is None:
        raise OptionError("--task jsonl: needs --task-data FILE, the rows to ask.")
    code = [task.name for task in tasks if task.runs_code]
    if code and not call.allow_code_execution:
        raise OptionError(
            f"--task {code[0]}: its score runs what the model wrote; allow that with "
            "--allow-code-execution (a separate process with limits on time, memory, files and "
            "network)."
        )
    if call.allow_code_execution and not code:
        raise OptionError(
            "--allow-code-execution: only with a task that runs code, e.g. humaneval."
        )
    check_given(names, call.task_data)


def longest_reply(call: EvalCall, default: int) -> int:
    """The longest reply of any prompt: as typed, else the tasks' own, else the default [tokens]."""
    if call.max_new_tokens is not None:
        return call.max_new_tokens
    if not call.task:
        return default
    from vtrim.evaluation.tasks.table import find_task, parse_task

    return max(find_task(parse_task(typed)[0]).max_new_tokens for typed in call.task)


def plain_writer(engine: Engine, settings: GenerationSettings) -> Callable[[TaskPrompt], str]:
    """What writes a reply by plain greedy decoding."""
    from dataclasses import replace

    from vtrim.evaluation.measure import limited

    greedy = replace(settings, temperature=0.0, top_k=0, top_p=1.0, adaptive=False)

    def write(prompt: TaskPrompt) -> str:
        made = engine.decode_plain(prompt.ids, limited(greedy, prompt))
        return str(engine.tokenizer.decode(list(made.tokens), skip_special_tokens=True))

    return write


def task_numbers(
    prompts: Sequence[Prompt], generations: Mapping[str, Sequence[Generation]], tokenizer: Any
) -> dict[str, Any]:
    """``tasks`` of a result: each one's speed and scores; nothing where no task was asked."""
    from vtrim.evaluation.tasks.asking import TaskPrompt
    from vtrim.evaluation.tasks.results import task_results

    asked = [prompt for prompt in prompts if isinstance(prompt, TaskPrompt)]
    if not asked:
        return {}

    def text(made: Any) -> str:
        if not made.tokens:  # a server that tells no ids
            return str(getattr(made, "text", None) or "")
        return str(tokenizer.decode(list(made.tokens), skip_special_tokens=True))

    return {"tasks": task_results(asked, generations, text)}
