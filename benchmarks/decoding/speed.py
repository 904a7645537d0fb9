"""Decoding speed of vtrim and its peers in separate, alternating processes.

    python benchmarks/decoding/speed.py --prompts recipes/demo/heldout_prompts.jsonl \
        --draft vtrim-run/draft --vllm-python PATH --rounds 5 --out benchmarks/decoding/speed.json

Batch 1, greedy, bf16, one thread, the same prompts for all. A round runs every engine once, each in
a fresh process, in an order that rotates; numbers are medians over the rounds, and a ratio is taken
within its round. What is timed: see timing.py.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from timing import Job, one_thread

HERE = Path(__file__).parent
BASE = "transformers"
ENGINES = (
    "transformers,prompt-lookup,vtrim-plain,vtrim-ngram,vtrim-eagle,vtrim-dropmatch,vllm,vllm-ngram"
)
LOOKUP = ("prompt-lookup", "vtrim-ngram", "vllm-ngram")
SPEED = {"cpu": "tokens_per_cpu_second", "wall": "tokens_per_wall_second"}


def make_jobs(given: argparse.Namespace) -> dict[str, Job]:
    """The job of each engine; the prompts are rendered here, once for all."""
    from vtrim.chat.stops import stop_ids
    from vtrim.models.hub import load_config, load_generation_config, load_tokenizer, resolve_model

    tokenizer = load_tokenizer(given.target)
    stops = stop_ids(tokenizer, load_generation_config(given.target), load_config(given.target))
    prompts = []
    for line in given.prompts.read_text(encoding="utf-8").splitlines()[: given.num_prompts]:
        turns = json.loads(line)["messages"]
        while turns[-1]["role"] == "assistant":
            turns = turns[:-1]
        ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        prompts.append(ids)
    return {
        engine: Job(
            engine=engine,
            target=str(resolve_model(given.target)),
            prompts=prompts,
            stop_ids=sorted(stops),
            max_new_tokens=given.max_new_tokens,
            num_draft_tokens=(
                given.num_lookup_tokens if engine in LOOKUP else given.num_draft_tokens
            ),
            draft=str(given.draft.resolve()) if given.draft else None,
        )
        for engine in given.engines.split(",")
    }


def run(job: Job, vllm_python: str | None) -> dict[str, Any]:
    """What the engine's process answers."""
    vllm = job.engine.startswith("vllm")
    python = vllm_python if vllm else sys.executable
    script = HERE / ("speed_vllm.py" if vllm else "speed_torch.py")
    done = subprocess.run(  # noqa: S603
        [str(python), str(script)],
        input=job.encode(),
        env=one_thread(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{job.engine} failed:\n{done.stderr[-3000:]}")
    answered: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answered


def rounds_of(jobs: dict[str, Job], given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One answer an engine and round; the round's first engine moves on by one each time."""
    names = list(jobs)
    for turn in range(given.rounds):
        first = turn % len(names)
        yield {name: run(jobs[name], given.vllm_python) for name in names[first:] + names[:first]}


def summary(rounds: list[dict[str, Any]], clock: str) -> dict[str, Any]:
    """Each engine's median speed, its ratio to the base, and how far its replies are the base's."""
    speed, table = SPEED[clock], {}
    for name in rounds[0]:
        ratios = [one[name][speed] / one[BASE][speed] for one in rounds if BASE in one]
        same = [
            a == b
            for one in rounds
            if BASE in one
            for a, b in zip(one[name]["replies"], one[BASE]["replies"], strict=True)
        ]
        table[name] = {
            "tokens_per_second": median(one[name][speed] for one in rounds),
            "ratio": median(ratios) if ratios else None,
            "ratios": ratios,
            "tokens": rounds[0][name]["tokens"],
            "same_replies": sum(same) / len(same) if same else None,
        }
    return table


def report(rounds: list[dict[str, Any]], given: argparse.Namespace) -> dict[str, Any]:
    """All that is written: settings, both clocks' tables, and each round's times."""
    times = [
        {name: {k: v for k, v in one.items() if k != "replies"} for name, one in turn.items()}
        for turn in rounds
    ]
    settings = {
        "target": given.target,
        "num_prompts": len(next(iter(rounds[0].values()))["replies"]),
        "max_new_tokens": given.max_new_tokens,
        "num_draft_tokens": given.num_draft_tokens,
        "num_lookup_tokens": given.num_lookup_tokens,
        "rounds": len(rounds),
    }
    tables = {clock: summary(rounds, clock) for clock in SPEED}
    return {"settings": settings, **tables, "times": times}


def show(table: dict[str, Any]) -> None:
    """The table of one clock on stdout."""
    for name, row in table.items():
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
        print(  # noqa: T201
            f"{name:22} {row['tokens_per_second']:8.1f} tokens/s   {ratio:>5} x {BASE}",
            flush=True,
        )


def main() -> None:
    """Runs the rounds, prints the ratios after each and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", default=ENGINES)
    parser.add_argument("--target", default="smollm2")
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--prompts", type=Path, required=True, help="chat rows, one a line")
    parser.add_argument("--num-prompts", type=int, default=10)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--num-draft-tokens", type=int, default=3)
    parser.add_argument("--num-lookup-tokens", type=int, default=5, help="of n-gram engines")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=sorted(SPEED), default="wall")
    parser.add_argument("--vllm-python", help="Python of the environment that has vLLM")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.vllm_python is None and "vllm" in given.engines:
        parser.error("--vllm-python names the Python that has vLLM; or leave vllm out of --engines")
    rounds = []
    for answered in rounds_of(make_jobs(given), given):
        rounds.append(answered)
        print(f"after {len(rounds)} of {given.rounds} rounds", flush=True)  # noqa: T201
        show(summary(rounds, given.clock))
        if given.out:
            text = json.dumps(report(rounds, given), indent=1)
            given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
