from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from vtrim.chat.conversation import Origin
from vtrim.evaluation.prompts import Prompt
from vtrim.evaluation.tasks.asking import TaskPrompt
from vtrim.evaluation.tasks.grading import grader
from vtrim.evaluation.tasks.gsm8k import GSM8K
from vtrim.evaluation.tasks.numbers import is_number, last_number
from vtrim.evaluation.tasks.task import Question


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("She makes 9 * 2 = $18 every day.", "18"),
        ("between 3 and 1,234.50 euros.", "1234.50"),
        ("it fell by -4", "-4"),
        ("3.", "3"),
        ("18.0", "18"),
        ("none", None),
    ],
)
def test_the_last_number_of_a_text_is_found(text: str, number: str | None) -> None:
    assert last_number(text) == (None if number is None else Decimal(number))


@pytest.mark.parametrize(("text", "one"), [(" 1,000 ", True), ("-2.5", True), ("in 1900", False)])
def test_a_number_is_one_and_nothing_else(text: str, one: bool) -> None:
    assert is_number(text) is one


def test_answers_beside_the_prompts_of_a_file_grade_its_replies(tmp_path: Path) -> None:
    rows = [
        {"question": "a", "answer": "9 - 2 = 7\n#### 7"},
        {"question": "b", "answers": ["Paris", "Lyon"]},
        {"question": "c", "answer": 12},
        {"question": "d"},
        {"question": "e", "answer": "1,000"},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    prompts = [Prompt((1,), Origin(str(file), line)) for line in (1, 2, 3, 4, 5)]
    grade = grader(prompts, file)
    assert grade(["so 7", "in Lyon", "11", "", "1000 in all"]) == 3 / 4
    assert grader(prompts[3:4], file)(["x"]) is None
    assert grader(prompts, None)(["7"] * 5) is None


def test_tasks_grade_the_last_turns_replies_up_to_a_stop() -> None:
    prompts = []
    for line, answer in ((1, "7"), (2, "8")):
        question = Question(origin=Origin("f", line), messages=(), answer=answer)
        prompts.append(
            TaskPrompt(
                ids=(1,), origin=question.origin, stop=("Q:",), task=GSM8K, question=question,
                messages=(),
            )
        )  # fmt: skip
    later = Question(origin=Origin("f", 3), messages=(), later=("and?",), answer="9")
    prompts.append(
        TaskPrompt(ids=(1,), origin=later.origin, task=GSM8K, question=later, messages=())
    )
    assert grader(prompts, None)(["7 Q: what is 9", "9", "none"]) == 0.5
