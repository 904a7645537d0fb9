"""Share of greedy replies that equal plain decoding, for each drafter and batch size.

Usage: python benchmarks/decoding/identity.py --prompts chat.jsonl [--target smollm2]
           [--draft vtrim-run/draft] [--drafters eagle tree ngram model] [--num-prompts 50]
           [--batch-sizes 1 4] [--tokens 64] [--dtype float32] [--forward lean]
A line of the prompts' file is {"messages": [...]} or {"prompt": text}. One JSON line a combination;
in fp32 every share must be 1.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.drafters import DrafterOptions, drafter_options, make_drafter
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import Generation, GenerationSettings
from vtrim.models.hub import load_tokenizer
from vtrim.models.layout import load_draft
from vtrim.models.lean import fast_target
from vtrim.models.target import Target, load_target


def read_prompts(path: Path, tokenizer: Any, count: int) -> list[list[int]]:
    """Token ids of the first ``count`` prompts: each up to its last user turn."""
    prompts: list[list[int]] = []
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            chat = row.get("messages") or [{"role": "user", "content": row["prompt"]}]
            last = max(i for i, turn in enumerate(chat) if turn["role"] == "user")
            prompts.append(
                tokenizer.apply_chat_template(
                    chat[: last + 1], add_generation_prompt=True, return_dict=False
                )
            )
            if len(prompts) == count:
                break
    return prompts


def options_of(name: str, skip_layers: tuple[int, ...]) -> DrafterOptions:
    """The drafter's own defaults; ``model`` is the target without some of its blocks."""
    return drafter_options(name, skip_layers=skip_layers if name == "model" else None)


def compare(plain: list[Generation], replies: list[Generation]) -> dict[str, Any]:
    """How many replies are equal, and how much drafting gave."""
    same = [a.tokens == b.tokens for a, b in zip(plain, replies, strict=True)]
    rounds = sum(reply.rounds for reply in replies)
    return {
        "identical": sum(same) / len(same),
        "differ": [index for index, equal in enumerate(same) if not equal],
        "acceptance_length": sum(reply.emitted for reply in replies) / max(1, rounds),
        "off_argmax": sum(reply.off_argmax for reply in replies),
    }


def main() -> None:
    """Prints a JSON line a combination."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="smollm2")
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--drafters", nargs="+", default=["eagle", "tree", "ngram", "model"])
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--num-prompts", type=int, default=50)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--num-draft-tokens", type=int, default=5)
    parser.add_argument("--skip-layers", type=int, nargs="+", default=[10, 12, 14, 16, 18, 20])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--forward", choices=["lean", "transformers"], default="lean")
    given = parser.parse_args()
    torch.set_num_threads(1)
    loaded = load_target(given.target, dtype=getattr(torch, given.dtype), device=given.device)
    target: Target = fast_target(loaded, print) if given.forward == "lean" else loaded
    draft = None
    if given.draft is not None:
        draft = load_draft(given.draft).model.to(target.device, target.dtype)
    tokenizer = load_tokenizer(given.target)
    prompts = read_prompts(given.prompts, tokenizer, given.num_prompts)
    settings = GenerationSettings(
        max_new_tokens=given.tokens,
        stop_ids=frozenset({tokenizer.eos_token_id}),
        temperature=0.0,
        num_draft_tokens=given.num_draft_tokens,
        seed=0,
    )
    plain = Engine(target).decode_many(prompts, settings, None)
    for name in ("plain", *given.drafters):
        drafter = None
        if name != "plain":
            options = options_of(name, tuple(given.skip_layers))
            drafter = make_drafter(options, target, draft=draft)
        engine = Engine(target, drafter)
        for size in given.batch_sizes:
            acceptor = None if drafter is None else make_acceptor("greedy")
            replies = engine.decode_many(prompts, settings, acceptor, batch_size=size)
            facts = {"drafter": name, "batch_size": size, "dtype": given.dtype}
            facts |= {"forward": type(target).__name__, "prompts": len(prompts)}
            print(json.dumps({**facts, **compare(plain, replies)}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
