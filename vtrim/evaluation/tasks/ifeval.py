"""IFEval: replies checked against the rules that their prompts state, strictly and loosely.

The rules are lm-evaluation-harness's own, used as a library (``pip install 'vtrim[tasks]'``); it
is imported when the first question is read, for it takes seconds.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from vtrim.chat.conversation import Origin, RowError
from vtrim.errors import InputError
from vtrim.evaluation.tasks.rows import NO_ANSWER, text_at, user
from vtrim.evaluation.tasks.task import Question, Score, Task

Judge = Callable[[Mapping[str, Any], list[str]], Mapping[str, Any]]
"""A row and a list of one reply -> lm-evaluation-harness's four metrics."""

_NEEDED = ("lm_eval", "langdetect", "immutabledict", "nltk")
_SENTENCES = "length_constraints:number_sentences"
_SPLITTER = "tokenizers/punkt_tab"


def _ask(row: Any, origin: Origin) -> Question:
    prompt = text_at(row, "prompt")
    rules, details = row.get("instruction_id_list"), row.get("kwargs")
    if not isinstance(rules, list) or not isinstance(details, list) or not rules:
        raise RowError(NO_ANSWER, "the row needs `instruction_id_list` and `kwargs`")
    if len(rules) != len(details) or not all(isinstance(one, Mapping) for one in details):
        raise RowError(NO_ANSWER, "`kwargs` holds not one object for each rule")
    _check_rules(rules)
    answer = {
        "key": row.get("key", 0),
        "prompt": prompt,
        "instruction_id_list": rules,
        "kwargs": details,
    }
    return Question(origin=origin, messages=user(prompt), answer=answer)


def _judge(question: Question, reply: str) -> Score:
    results = _published()(question.answer, [reply])
    strict, loose = results["inst_level_strict_acc"], results["inst_level_loose_acc"]
    return Score(
        value=float(results["prompt_level_strict_acc"]),
        parts={"prompt_loose": float(results["prompt_level_loose_acc"])},
        counts={
            "rules": float(len(strict)),
            "rules_kept_strict": float(sum(strict)),
            "rules_kept_loose": float(sum(loose)),
        },
    )


def _check_rules(rules: list[Any]) -> None:
    """Refuses rules that cannot be checked here.

    Raises:
        InputError: the library is not installed.
        RowError: a rule is not known, or needs data that is not on this machine.
    """
    _published()
    from lm_eval.tasks.ifeval.instructions_registry import INSTRUCTION_DICT

    unknown = [rule for rule in rules if rule not in INSTRUCTION_DICT]
    if unknown:
        raise RowError(NO_ANSWER, f"no such rule: {unknown[0]}")
    if _SENTENCES in rules and not _has_splitter():
        raise RowError(
            "no sentence splitter",
            "one of its rules counts sentences: python -m nltk.downloader punkt_tab (or NLTK_DATA)",
        )


@functools.cache
def _has_splitter() -> bool:
    import nltk

    try:
        nltk.data.find(_SPLITTER)
    except LookupError:
        return False
    return True


@functools.cache
def _published() -> Judge:
    """The library's scorer; imported without a download and without a word on stdout.

    Raises:
        InputError: the library is not installed.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise InputError(
            f"--task ifeval: {missing[0]} is not installed, which has the rules. Get it: "
            "pip install 'vtrim[tasks]'."
        )
    rank = os.environ.get("LOCAL_RANK")
    os.environ["LOCAL_RANK"] = "1"  # on import, rank 0 looks for nltk's data on the network
    try:
        with contextlib.redirect_stdout(sys.stderr):
            from langdetect import DetectorFactory
            from lm_eval.tasks.ifeval.utils import process_results
    finally:
        if rank is None:
            del os.environ["LOCAL_RANK"]
        else:
            os.environ["LOCAL_RANK"] = rank
    DetectorFactory.seed = 0  # else it tells the language of short texts by chance
    judge: Judge = process_results
    return judge


IFEVAL = Task(
    name="ifeval",
    title="IFEval: instructions that can be verified",
    licence="Apache-2.0",
    metric="prompt_strict",
    max_new_tokens=1280,
    ask=_ask,
    score=_judge,
)
