"""The prompts and the rules of docs/results/dropmatch.md."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

P_DROPS = (0.02, 0.05, "auto", 0.3)
CRITERIA = ("naive", "js", "majority", "full")
HEADS, MORE_HEADS = 5, (3, 8)
CODE_REQUEST = "Complete this Python function. Answer with the code only.\n\n"


@dataclass(frozen=True)
class PromptSet:
    """A file of prompts. texts: what the user says in each row."""

    file: str
    title: str
    texts: Callable[[Path], list[str]]


def _jsonl(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    return [json.loads(line) for line in text.splitlines()]


def _first_turns(path: Path) -> list[str]:
    return [row["turns"][0] for row in _jsonl(path)]


def _questions(path: Path) -> list[str]:
    return [row["question"] for row in _jsonl(path)]


def _functions(path: Path) -> list[str]:
    return [CODE_REQUEST + row["prompt"] for row in _jsonl(path)]


def _cells(path: Path) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return [row[0] for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


SETS = {
    "mt_bench": PromptSet("eval/mt_bench_question.jsonl", "MT-Bench", _first_turns),
    "gsm8k": PromptSet("eval/gsm8k_test.jsonl", "GSM8K", _questions),
    "humaneval": PromptSet("eval/HumanEval.jsonl.gz", "HumanEval", _functions),
    "mgsm_de": PromptSet("nonenglish/mgsm_de.tsv", "MGSM de", _cells),
    "mgsm_zh": PromptSet("nonenglish/mgsm_zh.tsv", "MGSM zh", _cells),
    "mgsm_ja": PromptSet("nonenglish/mgsm_ja.tsv", "MGSM ja", _cells),
}


def prompts_of(name: str, data: Path, tokenizer: Any, count: int) -> list[list[int]]:
    """The first ``count`` prompts of a set, rendered as one user turn by the target's template."""
    from vtrim.chat.render import Renderer

    renderer = Renderer(tokenizer)
    texts = SETS[name].texts(data / SETS[name].file)[:count]
    return [renderer.prompt_ids([{"role": "user", "content": text}]) for text in texts]


@dataclass(frozen=True)
class Rule:
    """One way to decode. criterion: ``plain``, ``greedy`` or one of DropMatch's.

    diagnose: note what the paper's tables need; takes time, so such rows tell no speed.
    """

    criterion: str
    p_drop: float | str | None = None
    heads: int | None = None
    diagnose: bool = False

    @property
    def key(self) -> str:
        """Its name in the rows."""
        if self.p_drop is None:
            return self.criterion
        closely = " diagnose" if self.diagnose else ""
        return f"{self.criterion} p={self.p_drop} K={self.heads}{closely}"

    def acceptor(self) -> Any:
        """A fresh acceptor; None for plain decoding."""
        from vtrim.decoding.acceptors import make_acceptor

        if self.criterion == "plain":
            return None
        if self.criterion == "greedy":
            return make_acceptor("greedy")
        return make_acceptor(
            "dropmatch",
            criterion=self.criterion,
            p_drop=self.p_drop,
            heads=self.heads,
            diagnose=self.diagnose,
        )


def rules_of(name: str) -> list[Rule]:
    """The rules that a set is decoded by.

    GSM8K also tells what the number of heads does, HumanEval what the heads say (Tables 2 and 3).
    """
    rules = [Rule("plain"), Rule("greedy")]
    rules += [Rule(criterion, p, HEADS) for p in P_DROPS for criterion in CRITERIA]
    if name == "gsm8k":
        rules += [Rule("full", p, heads) for p in P_DROPS for heads in MORE_HEADS]
    if name == "humaneval":
        rules += [Rule("full", p, HEADS, diagnose=True) for p in P_DROPS]
    return rules
