"""Chat files as lists of replies, and coverage of any part of such a list."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vtrim.chat.conversation import Origin, conversation_key, conversation_of, is_heldout
from vtrim.chat.render import Renderer
from vtrim.trimming.count import Tally
from vtrim.trimming.coverage import Coverage

VOCAB_SIZE = 128_256
STOP_IDS = (128_001, 128_008, 128_009)  # of Llama 3.1's generation_config.json
DOMAINS = {
    "general chat": "chat_messages.jsonl",
    "function calling": "function_calling_messages.jsonl",
    "NER": "ner_messages.jsonl",
}


@dataclass(frozen=True)
class Row:
    """One conversation: its content key, whether it is held out, its source, its reply ids."""

    key: int
    heldout: bool
    source: str | None
    ids: npt.NDArray[np.int64]


def read_domains(data: Path, tokenizer: Any) -> dict[str, list[Row]]:
    """The replies of each domain, each of them encoded once."""
    return {name: rows_of(json_lines(data / file), tokenizer) for name, file in DOMAINS.items()}


def read_foreign(data: Path, tokenizer: Any) -> dict[str, list[Row]]:
    """Replies in Korean and in Chinese, with the prompts they answer."""
    folder = data / "nonenglish"
    answers = {
        row["question_id"]: row for row in json_lines(folder / "komt_bench_reference_ko.jsonl")
    }
    korean = [
        _chat(row["turns"], answers[row["question_id"]]["choices"][0]["turns"])
        for row in json_lines(folder / "komt_bench_question_ko.jsonl")
        if row["question_id"] in answers
    ]
    chinese = [
        _chat([row["question"]], [row["std_answer"]])
        for row in json_lines(folder / "belle_eval_set_zh.json")
        if row.get("std_answer")
    ]
    return {
        "Korean (KoMT-Bench references)": rows_of(korean, tokenizer),
        "Chinese (BELLE answers)": rows_of(chinese, tokenizer),
    }


def json_lines(path: Path) -> Iterator[Any]:
    """The rows of a JSONL file."""
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def _chat(prompts: Iterable[str], replies: Iterable[str]) -> dict[str, Any]:
    messages = []
    for prompt, reply in zip(prompts, replies, strict=False):
        messages.append({"role": "user", "content": prompt})
        messages.append({"role": "assistant", "content": reply})
    return {"messages": messages}


def rows_of(values: Iterable[Any], tokenizer: Any) -> list[Row]:
    """One row a conversation that has a reply; full renders, the reference of the fast path."""
    renderer = Renderer(tokenizer)
    rows = []
    for line, value in enumerate(values, 1):
        conversation = conversation_of(value, Origin("data", line))
        samples = renderer.samples(conversation)
        if samples:
            ids = np.concatenate([sample.ids[sample.mask] for sample in samples])
            key, held = conversation_key(conversation), is_heldout(conversation)
            rows.append(Row(key, held, conversation.source, ids))
    return rows


def coverage_of(rows: Sequence[Row]) -> Coverage:
    """The artefact that ``vtrim coverage`` would write for these conversations."""
    tally = Tally(VOCAB_SIZE)
    for row in rows:
        tally.add(row.ids, None, row.heldout, row.source)
        if row.heldout:
            tally.sample.add(row.key, row.ids)
    return Coverage(
        counts=tally.counts,
        heldout_counts=tally.heldout_counts,
        by_source=tally.by_source,
        sample=tally.sample.build(),
        target_vocab_size=VOCAB_SIZE,
        tokenizer_length=VOCAB_SIZE,
        tokenizer_fingerprint="",
        data_fingerprint="",
        stop_ids=STOP_IDS,
        rows_used=len(rows),
        rows_heldout=sum(row.heldout for row in rows),
    )


def drawn(rows: Sequence[Row], size: int, seed: int) -> tuple[list[Row], list[Row]]:
    """``size`` conversations drawn at random, and all others."""
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)  # noqa: S311 - a benchmark's subsets
    return [rows[i] for i in order[:size]], [rows[i] for i in order[size:]]
