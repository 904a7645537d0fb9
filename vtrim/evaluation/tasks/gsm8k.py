"""GSM8K and MGSM: word problems whose answer is one number, reasoned out step by step.

Prompts as lm-evaluation-harness 0.4.13 has them in ``gsm8k_cot_zeroshot`` and
``mgsm_native_cot_*``, each as one user turn; scores as its ``flexible-extract``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from vtrim.chat.conversation import Origin, RowError
from vtrim.evaluation.tasks.numbers import MARK, digits_score, is_number, number_score
from vtrim.evaluation.tasks.rows import NO_ANSWER, answer_at, text_at, user
from vtrim.evaluation.tasks.task import Question, Score, Task

# The language of a file (mgsm_de.tsv) or of a config on the hub (juletxara/mgsm:de).
_LANGUAGE = re.compile(r"mgsm[_:-]([a-z]{2})(?![a-z])", re.IGNORECASE)


class _Words(NamedTuple):
    """What stands before a question, and what asks for steps behind it."""

    before: str
    steps: str


_WORDS = {
    "bn": _Words("প্রশ্ন: ", "ধাপে ধাপে উত্তর:"),
    "de": _Words("Frage: ", "Schritt-für-Schritt-Antwort:"),
    "en": _Words("Question: ", "Step-by-Step Answer:"),
    "es": _Words("Pregunta: ", "Respuesta paso a paso:"),
    "fr": _Words("Question : ", "Réponse étape par étape :"),
    "ja": _Words("問題： ", "ステップごとの答え:"),  # noqa: RUF001
    "ru": _Words("Задача: ", "Пошаговоерешение:"),
    "sw": _Words("Swali: ", "Jibu la Hatua kwa Hatua:"),
    "te": _Words("ప్రశ్న: ", "దశలవారీగా సమాధానం:"),
    "th": _Words("โจทย์: ", "คำตอบทีละขั้นตอน:"),
    "zh": _Words("问题： ", "逐步解答:"),  # noqa: RUF001
}


def _gsm8k(row: Any, origin: Origin) -> Question:
    text = text_at(row, "question")
    return Question(
        origin=origin,
        messages=user(f"Q: {text}\nA: Let's think step by step."),
        answer=_marked(answer_at(row, "answer")),
    )


def _marked(recorded: str) -> str:
    """The number behind GSM8K's mark, or the number that is all of the answer."""
    answer = recorded.rpartition(MARK)[2].strip()
    if not is_number(answer):
        raise RowError(NO_ANSWER, f"`answer` holds no number behind {MARK}")
    return answer


def _mgsm(row: Any, origin: Origin) -> Question:
    """A row of the published tables (question, tab, answer), or of the hub's."""
    if isinstance(row, list):
        row = dict(zip(("question", "answer_number"), row, strict=False))
    text = text_at(row, "question")
    answer = answer_at(row, "answer_number", "answer")
    found = _LANGUAGE.search(origin.file)
    named = row.get("language") if isinstance(row, Mapping) else None
    language = str(named or (found[1].lower() if found else "en"))
    words = _WORDS.get(language, _WORDS["en"])
    return Question(
        origin=origin,
        messages=user(f"{words.before}{text}\n{words.steps}"),
        answer=_marked(answer),
        group=language,
    )


def _judge_gsm8k(question: Question, reply: str) -> Score:
    return number_score(reply, question.answer)


def _judge_mgsm(question: Question, reply: str) -> Score:
    return digits_score(reply, question.answer)


GSM8K = Task(
    name="gsm8k",
    title="GSM8K, 1,319 word problems, zero-shot, step by step",
    licence="MIT",
    metric="accuracy",
    max_new_tokens=512,
    stop=("Q:",),
    ask=_gsm8k,
    score=_judge_gsm8k,
)
MGSM = Task(
    name="mgsm",
    title="MGSM, 250 problems of GSM8K in each of 11 languages",
    licence="CC-BY-4.0",
    metric="accuracy",
    max_new_tokens=512,
    ask=_mgsm,
    score=_judge_mgsm,
)
