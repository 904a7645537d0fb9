"""Trains a draft for each domain and vocabulary, then measures all of them in turn.

    python benchmarks/domains/prepare.py ../shared/data DIR
    vtrim regenerate DIR/DOMAIN/prompts.jsonl -o DIR/DOMAIN/replies.jsonl --target smollm2
        --max-new-tokens N          # general 160 (--shard 1/2 is enough), tools 128, ner 96
    python benchmarks/domains/run.py train DIR --tokens 100000 --epochs 2
    python benchmarks/domains/run.py eval DIR --repeats 3

``DRAFTS`` says which. Every draft of a domain is trained on the same replies in the same order, for
as many passes, from the same stored target states; only its vocabulary differs. Both parts go on
where they were stopped. eval writes DIR/results/DRAFT--DOMAIN--REPEAT.json, a process each, the
drafts' order turned from repeat to repeat; its seconds are CPU seconds of one thread unless
``--clock wall`` is given. All of it is commands of vtrim.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

DOMAINS = ("general", "tools", "ner")
DRAFTS = list(
    dict.fromkeys((domain, vocab) for domain in DOMAINS for vocab in (domain, "full", "general"))
)
"""Domain that a draft is trained on, and whose vocabulary it has; ``full`` is the target's."""
RECIPE = {
    "ttt-steps": 3, "optimizer": "muon", "muon-lr": 0.04, "lr": 3e-3, "warmup": 0.05,
    "micro-batch": 8, "max-length": 1280, "eval-every": 100, "eval-samples": 48,
}  # fmt: skip
ALPHA = "0.6"
MODULE = ("-m", "vtrim")
CPU_EVAL = Path(__file__).with_name("cpu_eval.py")


def main() -> None:
    """Trains, or measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("train", "eval"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=100_000, help="reply tokens a draft")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--clock", choices=("cpu", "wall"), default="cpu")
    parser.add_argument("--only", action="append", choices=DOMAINS, help="domains (default: all)")
    args = parser.parse_args()
    wanted = [one for one in DRAFTS if one[0] in (args.only or DOMAINS)]
    if args.part == "train":
        for domain, vocab in wanted:
            train(args.folder, domain, vocab, args.tokens, args.epochs)
        return
    for repeat in range(args.repeats):
        turned = list(islice(cycle(wanted), repeat, repeat + len(wanted)))
        for domain, vocab in turned:
            measure(args, domain, vocab, repeat)


def train(folder: Path, domain: str, vocab: str, tokens: int, epochs: int) -> None:
    """One draft, in its own run folder."""
    run = run_of(folder, domain, vocab)
    if (run / "draft" / "model.safetensors").exists():
        return
    data = first_replies(folder / domain, tokens)
    vtrim("coverage", data, "--target", "smollm2", "--run", run)
    vtrim("search", "--alpha", ALPHA, "--run", run)
    chosen = [] if vocab == domain else ["--vocab", "full"]
    if vocab not in (domain, "full"):
        chosen = ["--vocab", run_of(folder, vocab, vocab) / "vocab.safetensors"]
    recipe = [word for name, value in RECIPE.items() for word in (f"--{name}", value)]
    states = ["--cache-features", folder / "states" / domain]
    vtrim("train-draft", "--run", run, "--epochs", epochs, *recipe, *chosen, *states)


def measure(args: argparse.Namespace, domain: str, vocab: str, repeat: int) -> None:
    """One process: plain decoding and the draft, on the domain's held-out prompts."""
    name = f"{domain}-{vocab}--{domain}--{repeat}"
    result = args.folder / "results" / f"{name}.json"
    if result.exists():
        return
    run = run_of(args.folder, domain, vocab)
    prompts = ["--prompts", args.folder / domain / "heldout.jsonl", "--num-prompts", args.prompts]
    length = ["--max-new-tokens", args.max_new_tokens, "--num-draft-tokens", 3]
    words = ("eval", "--run", run, "--acceptor", "greedy", *prompts, *length, "--name", name)
    vtrim(*words, by=[str(CPU_EVAL)] if args.clock == "cpu" else MODULE)
    measured = json.loads((run / "eval" / f"{name}.json").read_text(encoding="utf-8"))
    result.parent.mkdir(exist_ok=True)
    result.write_text(json.dumps({**measured, "clock": args.clock}), encoding="utf-8")


def first_replies(folder: Path, tokens: int) -> Path:
    """The first rows of a domain's replies that hold at most so many reply tokens."""
    output, seen = folder / f"replies-{tokens}.jsonl", 0
    with (folder / "replies.jsonl").open(encoding="utf-8") as rows:
        kept = []
        for row in rows:
            seen += sum(json.loads(row)["loss_mask"])
            if seen > tokens:
                break
            kept.append(row)
    output.write_text("".join(kept), encoding="utf-8")
    return output


def run_of(folder: Path, domain: str, vocab: str) -> Path:
    """The run folder of a draft."""
    return folder / "runs" / f"{domain}-{vocab}"


def vtrim(*words: object, by: Sequence[str] = MODULE) -> None:
    """One command of vtrim, its numbers and seconds on one line."""
    started = time.monotonic()
    line = [sys.executable, *by, *map(str, words), "--json"]
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    found = json.loads(done.stdout)
    found.pop("per_prompt", None)
    print(words[0], round(time.monotonic() - started), json.dumps(found)[:600], flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
