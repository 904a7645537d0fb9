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
from vtrim.decoding.drafters import drafter_options, make_drafter
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import GenerationSettings
from vtrim.flops.cost import DraftStep, draft_flops
from vtrim.models.draft import Eagle3Draft
from vtrim.models.hub import load_config, load_tokenizer
from vtrim.models.lean import fast_target
from vtrim.models.lean_draft import fast_draft
from vtrim.models.target import Target, load_target
from vtrim.shape import DraftShape

PROMPTS = (
    "Explain in a few sentences why bread rises.",
    "Write a short poem about a lighthouse in winter.",
    "How do I reverse a list in Python? Show an example.",
    "Name five rivers and the seas they flow into.",
)
NUM_DRAFT_TOKENS = 3
TREE = "tree"


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


def decode(engine: Engine, prompt: list[int], tokens: int) -> list[dict[str, float]]:
    """CPU seconds by part of each round that drafts to its full depth."""
    settings = GenerationSettings(
        max_new_tokens=tokens,
        stop_ids=frozenset(),
        temperature=0.0,
        num_draft_tokens=NUM_DRAFT_TOKENS,
        seed=0,
    )
    drafter: Any = engine.drafter
    draft = drafter.draft
    rounds = engine._rounds([prompt], settings, exact_acceptor(0.0, 0), 1, None)
    rounds.admit(prompt, 0, len(prompt) + tokens)
    (sequence,) = rounds.live
    measured = []
    while sequence.room >= NUM_DRAFT_TOKENS:
        clock = Clock()
        with (
            clock.timed(rounds, "round", "cycle"),
            clock.timed(sequence, "note", "note"),
            clock.timed(drafter, "propose", "propose"),
            clock.timed(engine.target, "forward", "target"),
            clock.timed(engine.target, "logits", "target"),
            clock.timed(draft, "fuse", "draft"),
            clock.timed(draft, "step", "draft"),
            clock.timed(draft, "logits", "draft"),
        ):
            rounds.round()
        clock.seconds["cycle"] -= clock.seconds.pop("note")  # measurement, not decoding
        measured.append(clock.seconds)
    return measured


def random_draft(target: Target, shape: DraftShape, size: int) -> Eagle3Draft:
    """A draft with random weights: its cost does not depend on what it proposes."""
    torch.manual_seed(size)
    draft = Eagle3Draft(shape, torch.arange(size)).to(target.dtype).eval().requires_grad_(False)
    return fast_draft(draft, print)


def measure(name: str, sizes: tuple[int, ...], tokens: int, repeats: int) -> dict[str, Any]:
    """The report of each draft vocabulary, the full one last, and of trees with the first."""
    torch.set_num_threads(1)
    target = fast_target(load_target(name, dtype=torch.bfloat16), print)
    shape = DraftShape.from_target_config(load_config(name))
    sizes = (*sizes, shape.target_vocab_size)
    drafts = {size: random_draft(target, shape, size) for size in sizes}
    engines = {
        str(size): Engine(target, ChainDrafter(draft, target.embedding))
        for size, draft in drafts.items()
    }
    trees = make_drafter(drafter_options("tree"), target, draft=drafts[sizes[0]])
    engines[TREE] = Engine(target, trees)
    tokenizer = load_tokenizer(name)
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
        )
        for text in PROMPTS
    ]
    rounds: dict[str, list[dict[str, float]]] = {case: [] for case in engines}
    cases = list(engines)
    with torch.inference_mode():
        for case in cases:
            decode(engines[case], prompts[0], 8)
        for turn in range(repeats):
            for index, prompt in enumerate(prompts):
                first = (turn + index) % len(cases)
                for case in cases[first:] + cases[:first]:
                    rounds[case] += decode(engines[case], prompt, tokens)
    chains = {str(size): chain_report(shape, size, rounds[str(size)]) for size in sizes}
    return {"by_draft_vocab_size": chains, TREE: report(rounds[TREE])}


def report(rounds: list[dict[str, float]]) -> dict[str, Any]:
    """Medians over the rounds: milliseconds, and the share of neither model's forward."""
    return {
        "rounds": len(rounds),
        "cycle_ms": 1e3 * median(r["cycle"] for r in rounds),
        "target_ms": 1e3 * median(r["target"] for r in rounds),
        "draft_ms": 1e3 * median(r["draft"] for r in rounds),
        "own_cost_share": median(1 - (r["target"] + r["draft"]) / r["cycle"] for r in rounds),
    }


def chain_report(shape: DraftShape, size: int, rounds: list[dict[str, float]]) -> dict[str, Any]:
    """The report with the cost of a draft step, measured and by the FLOPs model."""
    first, later = draft_flops(shape, size), draft_flops(shape, size, DraftStep(recursive=True))
    later_steps = NUM_DRAFT_TOKENS - 1
    return {
        **report(rounds),
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
    result = measure(given.target, tuple(given.k), given.tokens, given.repeats)
    rows = result["by_draft_vocab_size"]
    full = list(rows.values())[-1]
    for row in rows.values():
        row["draft_step_ratio"] = full["draft_step_ms"] / row["draft_step_ms"]
        row["measured_reduction"] = 1 - row["draft_step_ms"] / full["draft_step_ms"]
        row["predicted_reduction"] = 1 - row["draft_step_flops"] / full["draft_step_flops"]
    text = json.dumps({"target": given.target, **result}, indent=1)
    print(text)  # noqa: T201
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
