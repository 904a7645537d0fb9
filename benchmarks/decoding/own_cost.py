"""What speculative decoding costs beside its forwards, and what a trimmed head saves a draft step.

Usage: python benchmarks/decoding/own_cost.py [--k 6144] [--repeats 2] [--out FILE]
Times are CPU seconds of one thread; the vocabularies alternate from prompt to prompt.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch

from vtrim.decoding.acceptors import exact_acceptor
from vtrim.decoding.chain import ChainDrafter
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import GenerationSettings
from vtrim.decoding.stopwatch import Stopwatch
from vtrim.flops.cost import DraftStep, draft_flops
from vtrim.models.draft import Eagle3Draft
from vtrim.models.hub import load_config, load_tokenizer
from vtrim.models.target import Target, load_target
from vtrim.shape import DraftShape

PROMPTS = (
    "Explain in a few sentences why bread rises.",
    "Write a short poem about a lighthouse in winter.",
    "How do I reverse a list in Python? Show an example.",
    "Name five rivers and the seas they flow into.",
)
NUM_DRAFT_TOKENS = 3


class Clock:
    """CPU seconds by part, for calls that are wrapped while it is used."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, owner: Any, method: str, part: str) -> Iterator[None]:
        """Adds the time of each call of ``owner.method`` to a part."""
        original: Callable[..., Any] = getattr(owner, method)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            result = original(*args, **kwargs)
            self.seconds[part] = self.seconds.get(part, 0.0) + time.process_time() - start
            return result

        setattr(owner, method, wrapped)
        try:
            yield
        finally:
            setattr(owner, method, original)


def decode(
    engine: Engine, drafter: ChainDrafter, prompt: list[int], tokens: int
) -> list[dict[str, float]]:
    """CPU seconds by part of each round that drafts a whole chain."""
    settings = GenerationSettings(
        max_new_tokens=tokens,
        stop_ids=frozenset(),
        temperature=0.0,
        num_draft_tokens=NUM_DRAFT_TOKENS,
        seed=0,
    )
    engine.drafter, target, draft = drafter, engine.target, drafter.draft
    acceptor, watch = exact_acceptor(0.0, 0), Stopwatch(engine.target.device)
    state = engine._prefill(prompt, settings, 0, drafts=True)
    rounds = []
    while len(state.tokens) + NUM_DRAFT_TOKENS < state.reply_end:
        clock = Clock()
        with (
            clock.timed(engine, "_round", "cycle"),
            clock.timed(drafter, "propose", "propose"),
            clock.timed(target, "forward", "target"),
            clock.timed(target, "logits", "target"),
            clock.timed(draft, "fuse", "draft"),
            clock.timed(draft, "step", "draft"),
            clock.timed(draft, "logits", "draft"),
        ):
            engine._round(state, settings, acceptor, watch)
        rounds.append(clock.seconds)
    return rounds


def random_drafter(target: Target, shape: DraftShape, size: int) -> ChainDrafter:
    """A draft with random weights: its cost does not depend on what it proposes."""
    torch.manual_seed(size)
    draft = Eagle3Draft(shape, torch.arange(size)).to(target.dtype).eval().requires_grad_(False)
    return ChainDrafter(draft, target.embedding)


def measure(name: str, sizes: tuple[int, ...], tokens: int, repeats: int) -> dict[str, Any]:
    """The report of each draft vocabulary, the full one last; all are random drafts."""
    torch.set_num_threads(1)
    target = load_target(name, dtype=torch.bfloat16)
    shape = DraftShape.from_target_config(load_config(name))
    sizes = (*sizes, shape.target_vocab_size)
    drafters = {size: random_drafter(target, shape, size) for size in sizes}
    tokenizer = load_tokenizer(name)
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
        )
        for text in PROMPTS
    ]
    engine = Engine(target)
    rounds: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
    with torch.inference_mode():
        decode(engine, drafters[sizes[0]], prompts[0], 8)
        for turn in range(repeats):
            for index, prompt in enumerate(prompts):
                first = (turn + index) % len(sizes)
                for size in sizes[first:] + sizes[:first]:
                    rounds[size] += decode(engine, drafters[size], prompt, tokens)
    return {str(size): report(shape, size, rounds[size]) for size in sizes}


def report(shape: DraftShape, size: int, rounds: list[dict[str, float]]) -> dict[str, Any]:
    """Medians over the rounds: milliseconds, and the share of neither model's forward."""
    first, later = draft_flops(shape, size), draft_flops(shape, size, DraftStep(recursive=True))
    later_steps = NUM_DRAFT_TOKENS - 1
    return {
        "rounds": len(rounds),
        "cycle_ms": 1e3 * median(r["cycle"] for r in rounds),
        "target_ms": 1e3 * median(r["target"] for r in rounds),
        "draft_ms": 1e3 * median(r["draft"] for r in rounds),
        "own_cost_share": median(1 - (r["target"] + r["draft"]) / r["cycle"] for r in rounds),
        "draft_step_ms": 1e3 * median(r["propose"] for r in rounds) / NUM_DRAFT_TOKENS,
        "draft_step_flops": (first.total + later_steps * later.total) / NUM_DRAFT_TOKENS,
    }


def main() -> None:
    """Prints the reports as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="smollm2")
    parser.add_argument("--k", type=int, nargs="+", default=[6144])
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = measure(given.target, tuple(given.k), given.tokens, given.repeats)
    full = list(rows.values())[-1]
    for row in rows.values():
        row["draft_step_ratio"] = full["draft_step_ms"] / row["draft_step_ms"]
        row["measured_reduction"] = 1 - row["draft_step_ms"] / full["draft_step_ms"]
        row["predicted_reduction"] = 1 - row["draft_step_flops"] / full["draft_step_flops"]
    text = json.dumps({"target": given.target, "by_draft_vocab_size": rows}, indent=1)
    print(text)  # noqa: T201
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
