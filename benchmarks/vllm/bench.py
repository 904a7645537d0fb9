"""A draft over a trimmed vocabulary against one over the whole, in vLLM on this CPU.

    python benchmarks/vllm/bench.py --vllm-python .venv-vllm/bin/python --trimmed DIR --full DIR \
        --prompts heldout.jsonl --rounds 5 --out benchmarks/vllm/last_result.json

Batch 1, greedy, one thread, the same prompts for all: vLLM without a draft, with the full and with
the trimmed one, each in a fresh process, in an order that turns from round to round. The file is
written after each round, and a run with the same settings goes on from it.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ENGINES = ("plain", "full", "trimmed")


def make_job(given: argparse.Namespace) -> dict[str, Any]:
    """What all engines are asked; the prompts are rendered here, once."""
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
        "target": str(resolve_model(given.target)),
        "prompts": prompts,
        "stop_ids": sorted(stops),
        "max_new_tokens": given.max_new_tokens,
        "num_draft_tokens": given.num_draft_tokens,
        "dtype": given.dtype,
    }


def drafts_of(given: argparse.Namespace) -> dict[str, Path | None]:
    """The draft of each engine."""
    return {"plain": None, "full": given.full.resolve(), "trimmed": given.trimmed.resolve()}


def settings_of(given: argparse.Namespace, job: dict[str, Any]) -> dict[str, Any]:
    """What tells one measurement from another; no path of this machine."""
    from vtrim.artifacts import fingerprint_file

    drafts = {}
    for name, folder in drafts_of(given).items():
        if folder is not None:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            drafts[name] = {
                "k": config["draft_vocab_size"],
                "fingerprint": fingerprint_file(folder / "model.safetensors"),
            }
    return {
        "target": given.target,
        "target_vocab_size": config["vocab_size"],
        "drafts": drafts,
        "prompts": given.prompts.name,
        "prompt_fingerprint": fingerprint_file(given.prompts),
        "num_prompts": len(job["prompts"]),
        "max_new_tokens": given.max_new_tokens,
        "num_draft_tokens": given.num_draft_tokens,
        "dtype": given.dtype,
        "threads": 1,
    }


def run(job: dict[str, Any], draft: Path | None, python: str) -> dict[str, Any]:
    """What vLLM's process answers."""
    done = subprocess.run(  # noqa: S603
        [python, str(HERE / "worker.py")],
        input=json.dumps({**job, "draft": str(draft) if draft else None}),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit("vLLM failed; its error is above.")
    answered: dict[str, Any] = json.loads(done.stdout)
    return answered


def known(path: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The rounds of an earlier run with these settings."""
    if not path.exists():
        return []
    found = json.loads(path.read_text(encoding="utf-8"))
    return list(found["rounds"]) if found["settings"] == settings else []


def compact(answer: dict[str, Any], replies: list[list[int]] | None) -> dict[str, Any]:
    """An engine's rows by column, with the share of prompts whose reply is that without a draft."""
    rows = answer["rows"]
    columns = ("emitted", "steps", "drafts", "accepted", "wall_seconds", "cpu_seconds")
    kept: dict[str, Any] = {name: [round(row[name], 4) for row in rows] for name in columns}
    if replies is not None:
        kept["same_reply"] = [row["reply"] == one for row, one in zip(rows, replies, strict=True)]
    return kept


def main() -> None:
    """Runs the rounds that are missing and writes all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="smollm2")
    parser.add_argument("--full", type=Path, required=True, help="draft over the whole vocabulary")
    parser.add_argument("--trimmed", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True, help="chat rows, one a line")
    parser.add_argument("--num-prompts", type=int, default=20)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--num-draft-tokens", type=int, default=3)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vllm-python", required=True, help="Python of the environment with vLLM")
    parser.add_argument("--out", type=Path, default=HERE / "last_result.json")
    given = parser.parse_args()
    job, drafts = make_job(given), drafts_of(given)
    settings = settings_of(given, job)
    rounds = known(given.out, settings)
    while len(rounds) < given.rounds:
        turn = len(rounds) % len(ENGINES)
        answers = {
            name: run(job, drafts[name], given.vllm_python)
            for name in ENGINES[turn:] + ENGINES[:turn]
        }
        replies = [row["reply"] for row in answers["plain"]["rows"]]
        rounds.append(
            {n: compact(a, None if n == "plain" else replies) for n, a in answers.items()}
        )
        versions = {name: answers["plain"][name] for name in ("vllm", "torch")}
        machine = f"{platform.machine()}, {platform.system()}"
        record = {
            "settings": settings,
            "versions": versions,
            "machine": machine,
            "date": date.today().isoformat(),
            "rounds": rounds,
        }
        given.out.write_text(json.dumps(record) + "\n", encoding="utf-8")
        print(f"{len(rounds)} of {given.rounds} rounds", file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
