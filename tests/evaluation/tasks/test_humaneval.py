"""HumanEval: programs made from replies, and what running them says. HAND is checked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from vtrim.chat.conversation import Origin, RowError
from vtrim.evaluation.tasks.humaneval import HUMANEVAL, completion
from vtrim.evaluation.tasks.task import Question

PROMPT = '''from typing import List

def half(n: int) -> int:
    return n // 2

def largest(values: List[int], start: int = 0) -> int:
    """The largest value, or start where there is none.
    >>> largest([1, 3, 2])
    3
    """
'''
TEST = """
METADATA = {}

def check(candidate):
    assert candidate([1, 3, 2]) == 3
    assert candidate([]) == 0
    assert candidate([half(8), 1], 7) == 7
"""
ROW = {"task_id": "own/0", "prompt": PROMPT, "test": TEST, "entry_point": "largest"}
BODY = "    return max([start, *values])\n"
WHOLE = f"def largest(values, start=0):\n{BODY}"

HAND: list[tuple[dict[str, Any], str, bool]] = [
    (ROW, BODY, True),  # goes on where the prompt ends
    (ROW, f"{BODY}\n\nprint('more')", True),
    (ROW, WHOLE, True),
    (ROW, f"```python\n{WHOLE}```", True),
    (ROW, f"Sure!\n\n```python\n{PROMPT}{BODY}```\n\nIt takes `max`.", True),
    (ROW, f"```\n{WHOLE}\n```", True),
    (ROW, f"```Python\n{WHOLE}", True),  # the block is left open
    (ROW, f"```python\n{BODY}```", True),  # the body alone, in a block
    (ROW, f"Use it so:\n```python\nlargest([2])\n```\nwith\n```python\n{WHOLE}```", True),
    (ROW, f"```python\nfrom typing import List\n\n{WHOLE}```", True),
    (ROW, f"```python\ndef helper(v):\n    return max(v)\n\n{WHOLE.replace('max(', 'helper(')}```",
     True),
    (ROW, f"```python\nasync {WHOLE}```", False),  # a coroutine is no number
    (ROW, "    return max(values)\n", False),  # fails on the empty list
    (ROW, "    return 3\n", False),
    (ROW, "    pass\n", False),
    (ROW, "", False),  # the docstring alone is a body that returns None
    (ROW, "return max([start, *values])", False),  # not indented
    (ROW, f"The answer is:\n{BODY}", False),  # words are no Python
    (ROW, WHOLE.replace("largest", "biggest"), False),
    (ROW, f"```python\n{WHOLE.replace('max', 'maximum')}```", False),
    (ROW, "    while True: start += 1\n", False),
    (ROW, f"{BODY}\nimport sys\nsys.exit(0)\n", False),
    (ROW, f"{BODY}\nimport os\nos._exit(0)\n", False),
    (ROW, "    return [[]] * 10**12\n", False),
    (ROW, f"    open('x', 'w').write('x')\n{BODY}", False),
    (ROW, f"```python\n{WHOLE}\ndef check(candidate): pass\n```", True),
    (ROW, "    return start\ndef check(candidate): pass\n", False),  # the row's own check runs
]  # fmt: skip


def question_of(row: Any) -> Question | RowError:
    ((_, found),) = HUMANEVAL.questions([(Origin("HumanEval.jsonl.gz", 1), row)])
    return found


@pytest.mark.parametrize(("row", "reply", "right"), HAND)
def test_a_reply_passes_where_the_tests_run_through(row: Any, reply: str, right: bool) -> None:
    question = question_of(row)
    assert isinstance(question, Question)
    score = HUMANEVAL.score(question, reply)
    assert score is not None
    assert score.value == float(right)


def test_the_prompt_holds_the_function_to_complete() -> None:
    question = question_of(ROW)
    assert isinstance(question, Question)
    (turn,) = question.messages
    assert turn["role"] == "user"
    assert PROMPT.rstrip() in turn["content"]
    assert "check" not in turn["content"]


@pytest.mark.parametrize("part", ["prompt", "test", "entry_point"])
def test_a_row_without_a_part_says_which(part: str) -> None:
    found = question_of({key: value for key, value in ROW.items() if key != part})
    assert isinstance(found, RowError)
    assert part in found.detail


def test_a_function_whose_name_begins_like_the_wanted_one_is_another() -> None:
    blocks = "```python\ndef largest_of(v): ...\n```\n```python\ndef largest(v): ...\n```"
    assert completion(blocks, "largest") == "\ndef largest(v): ...\n"
