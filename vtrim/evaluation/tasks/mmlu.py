"""MMLU: questions of 57 subjects with four choices, reasoned out step by step.

Prompt and score as lm-evaluation-harness 0.4.13 has them in ``mmlu_flan_cot_zeroshot``
(``flexible-extract``), as one user turn.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from vtrim.chat.conversation import Origin, RowError
from vtrim.evaluation.tasks.rows import NO_ANSWER, NO_QUESTION, text_at, user
from vtrim.evaluation.tasks.task import Question, Score, Task

_LETTERS = string.ascii_uppercase
_MARKED = re.compile(r"\([A-Z]\)")
_TABLE_SUFFIX = "_test"  # abstract_algebra_test.csv, as the authors publish them


def _ask(row: Any, origin: Origin) -> Question:
    """A row of the authors' tables (question, choices, letter), or one with named columns."""
    if isinstance(row, list):
        row = _of_table(row, origin)
    text = text_at(row, "question").strip()
    choices = row.get("choices")
    if not isinstance(choices, list) or not all(isinstance(one, str) for one in choices):
        raise RowError(NO_QUESTION, "no list of texts under `choices`")
    if not 2 <= len(choices) <= len(_LETTERS):
        raise RowError(NO_QUESTION, f"{len(choices)} choices")
    right = _right(row.get("answer"), len(choices))
    listed = " ".join(f"({_LETTERS[i]}) {one}" for i, one in enumerate(choices))
    subject = row.get("subject")
    return Question(
        origin=origin,
        messages=user(f"Q: {text}\n{listed}\nA: Let's think step by step."),
        answer=(f"({_LETTERS[right]})", tuple(choices)),
        group=subject if isinstance(subject, str) else "",
    )


def _of_table(cells: Sequence[str], origin: Origin) -> Mapping[str, Any]:
    if len(cells) < 4:
        raise RowError(NO_QUESTION, f"{len(cells)} cells; a question, choices and a letter belong")
    subject = PurePath(origin.file).stem.removesuffix(_TABLE_SUFFIX)
    return {
        "question": cells[0],
        "choices": list(cells[1:-1]),
        "answer": cells[-1],
        "subject": subject,
    }


def _right(answer: Any, num_choices: int) -> int:
    """The index of the right choice, recorded as an index or as a letter."""
    if isinstance(answer, str) and len(answer.strip()) == 1:
        answer = _LETTERS.find(answer.strip().upper())
    if not isinstance(answer, int) or isinstance(answer, bool) or not 0 <= answer < num_choices:
        raise RowError(NO_ANSWER, "`answer` is neither the number nor the letter of a choice")
    return answer


def _judge(question: Question, reply: str) -> Score:
    right, choices = question.answer
    return Score(value=float(chosen(reply, choices) == right))


def chosen(reply: str, choices: Sequence[str]) -> str | None:
    """The choice that a reply makes, as ``(A)``; None where it makes none.

    The last letter in brackets counts; without one, the last choice that is spelled out, case and
    punctuation left aside; without that, the last letter behind a colon.
    """
    letters = [f"({_LETTERS[i]})" for i in range(len(choices))]
    marked = _MARKED.findall(reply)
    if marked:
        return str(marked[-1])
    plain = [_plain(choice.strip()) for choice in choices]
    spelled_out = re.findall("|".join(map(re.escape, plain)), _plain(reply))
    last = spelled_out[-1].strip() if spelled_out else ""
    if last:  # a choice that ends in a space once its punctuation is gone is never found again
        return dict(zip(plain, letters, strict=True)).get(last)
    behind_colon = re.findall(rf":\s*([{_LETTERS[: len(choices)]}])", reply)
    return f"({behind_colon[-1]})" if behind_colon else None


def _plain(text: str) -> str:
    """Lower case, without punctuation."""
    return "".join(c for c in text.lower() if not unicodedata.category(c).startswith("P"))


MMLU = Task(
    name="mmlu",
    title="MMLU, 14,042 questions of 57 subjects, zero-shot, step by step",
    licence="MIT",
    metric="accuracy",
    max_new_tokens=512,
    stop=("Q:",),
    ask=_ask,
    score=_judge,
)
