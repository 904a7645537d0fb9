"""docs/results/vllm.md from last_result.json.

    python benchmarks/vllm/page.py [--record FILE] [--out docs/results/vllm.md]

A prompt's seconds are the median over the rounds; intervals come from prompts drawn anew, in pairs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from vtrim.artifacts import write_text
from vtrim.evaluation.bootstrap import interval_between, paired_interval, paired_p_value

sys.path.append(str(Path(__file__).resolve().parents[1] / "results"))
from tabular import between, change, change_between, number, page_of, percent, prose, table

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "results" / "vllm.md"
NAMES = {"plain": "without a draft", "full": "draft, full vocabulary", "trimmed": "draft, trimmed"}
CLOCKS = {"cpu_seconds": "tokens per CPU second", "wall_seconds": "tokens/s (wall clock)"}
Rows = list[tuple[float, float]]


def per_prompt(rounds: list[dict[str, Any]], engine: str, top: str, below: str) -> Rows:
    """(a count, what it is divided by) of each prompt, medians over the rounds."""
    columns = [
        [median(values) for values in zip(*(turn[engine][name] for turn in rounds), strict=True)]
        for name in (top, below)
    ]
    return list(zip(*columns, strict=True))


def speeds(rounds: list[dict[str, Any]], engine: str, clock: str) -> Rows:
    """Tokens behind the prefill's and their seconds, of each prompt."""
    return per_prompt(rounds, engine, "emitted", clock)


def lengths(rounds: list[dict[str, Any]], engine: str) -> Rows:
    """Accepted and target tokens, and drafts, of each prompt, as vLLM counts them."""
    counted = per_prompt(rounds, engine, "accepted", "drafts")
    return [(accepted + drafts, drafts) for accepted, drafts in counted]


def rate(rows: Rows) -> float:
    """Sum over sum."""
    return sum(top for top, _ in rows) / sum(below for _, below in rows)


def lead(a: Rows, b: Rows) -> tuple[float, tuple[float, float] | None, float | None]:
    """How much higher a rate a is than b, its interval, and the p-value of the difference."""
    return (
        rate(a) / rate(b) - 1,
        interval_between(b, a, np.divide, lambda one, other: one / other - 1),
        paired_p_value(b, a, np.divide),
    )


def with_interval(rows: Rows, digits: int = 2) -> str:
    """1.58 (1.50 to 1.66)."""
    return f"{number(rate(rows), digits)} ({between(paired_interval(rows, np.divide), digits)})"


def engine_table(record: dict[str, Any]) -> str:
    """One row an engine."""
    rounds, drafts = record["rounds"], record["settings"]["drafts"]
    body = []
    for name, words in NAMES.items():
        drafting = name in drafts
        same = [one for turn in rounds for one in turn[name].get("same_reply", [])]
        cpu = speeds(rounds, name, "cpu_seconds")
        gain = lead(cpu, speeds(rounds, "plain", "cpu_seconds"))
        body.append(
            [
                words,
                f"{drafts[name]['k']:,}" if drafting else "-",
                with_interval(lengths(rounds, name)) if drafting else "1",
                *(with_interval(speeds(rounds, name, clock), 1) for clock in CLOCKS),
                f"{1 + gain[0]:.2f} x" if drafting else "1",
                percent(sum(same) / len(same), 0) if same else "-",
            ]
        )
    columns = ("vLLM", "k", "acceptance length", *CLOCKS.values(), "speed-up", "same replies")
    return table(columns, body)


def comparison(record: dict[str, Any]) -> str:
    """The trimmed draft against the full one."""
    rounds = record["rounds"]
    parts = {
        "acceptance length": lead(lengths(rounds, "trimmed"), lengths(rounds, "full")),
        **{
            words: lead(speeds(rounds, "trimmed", clock), speeds(rounds, "full", clock))
            for clock, words in CLOCKS.items()
        },
    }
    body = [
        [name, change(share), change_between(interval), number(p, 4)]
        for name, (share, interval, p) in parts.items()
    ]
    columns = ("trimmed against full", "difference", "95 % interval", "p")
    return table(columns, body)


def render(record: dict[str, Any]) -> str:
    """The page."""
    its = record["settings"]
    k, size = its["drafts"]["trimmed"]["k"], its["target_vocab_size"]
    length, _, _ = lead(lengths(record["rounds"], "trimmed"), lengths(record["rounds"], "full"))
    speed = lead(*(speeds(record["rounds"], name, "cpu_seconds") for name in ("trimmed", "full")))
    return page_of(
        [
            "# Trimmed against full vocabulary in vLLM",
            prose(
                f"Two EAGLE-3 drafts of {its['target']} in vLLM {record['versions']['vllm']} on a "
                f"CPU: one proposes any of the target's {size:,} tokens, the other {k:,} of them "
                f"({percent(k / size, 0)}). With the trimmed one vLLM gives "
                f"{change(speed[0])} tokens per CPU second ({change_between(speed[1])}) at "
                f"{change(length)} acceptance length."
            ),
            engine_table(record),
            comparison(record),
            "## How it was measured",
            prose(
                f"{its['num_prompts']} prompts of `{its['prompts']}`, which neither draft has "
                f"seen, replies of at most {its['max_new_tokens']} tokens, greedy, "
                f"{its['dtype']}, batch 1, {its['num_draft_tokens']} drafted tokens a round, "
                f"{its['threads']} thread, eager mode ({record['machine']}, {record['date']}). "
                f"{len(record['rounds'])} rounds; in each, every row of the table ran once in a "
                "fresh process, in an order that turns. A prompt's time is what follows its first "
                "token, the median over the rounds. Intervals (95 %, in brackets) are a paired "
                "bootstrap over prompts, p a paired permutation test. CPU seconds are those of "
                "vLLM's process; other work shared the machine, which the wall clock shows.\n\n"
                "Acceptance length is vLLM's own: 1 + accepted / drafts, tokens behind the end of "
                "a reply included. Same replies: share of prompts whose reply is that without a "
                "draft, to the token; in bfloat16 rounding may part them, in fp32 all are the "
                "same (`make test-interop`).\n\n"
                "By `python benchmarks/vllm/bench.py` (the record is "
                "`benchmarks/vllm/last_result.json`) and `python benchmarks/vllm/page.py`."
            ),
        ]
    )


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=Path, default=HERE / "last_result.json")
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    record = json.loads(given.record.read_text(encoding="utf-8"))
    write_text(given.out, render(record))


if __name__ == "__main__":
    main()
