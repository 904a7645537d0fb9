"""Cost of DropMatch's acceptance, as a ratio to one head product over its K * (L + 1) stacked rows.

    OMP_NUM_THREADS=1 python benchmarks/dropmatch/bench.py

Head of SmolLM2-135M [49152, 576] in bf16, one thread, K = 5, drafts over 6,144 and all ids, every
drafted token accepted, so that all L positions are judged (a rejection ends the work earlier).
Times are CPU time, the minimum of many calls that alternate between the rules [ms].
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.protocol import Proposal, Verification

V, D, K, CALLS = 49152, 576, 5, 40


def fastest(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The least CPU time of each call [ms]; the calls take turns."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(CALLS):
        for name, call in calls.items():
            start = time.process_time()
            call()
            best[name] = min(best[name], (time.process_time() - start) * 1e3)
    return best


def case(head: Tensor, length: int, num_kept: int) -> tuple[Proposal, Verification]:
    """A chain of the target's own arg-maxes, and the view of it."""
    hidden = torch.randn(length + 1, D).bfloat16()
    logits = F.linear(hidden, head).float()
    tokens = logits[:length].argmax(-1)
    others = torch.randperm(V)
    others = others[~torch.isin(others, tokens)][: num_kept - tokens.unique().numel()]
    vocab_ids = torch.cat((tokens.unique(), others)).sort().values
    law = logits[:length, vocab_ids].log_softmax(-1)
    view = Verification(hidden, logits, lambda h: F.linear(h, head), 0.0, 100, 0)
    return Proposal(tokens, None, law, vocab_ids), view


def measure(head: Tensor, length: int, num_kept: int) -> dict[str, object]:
    """Ratios of naive and full acceptance to the head product."""
    proposal, view = case(head, length, num_kept)
    rows = torch.randn(K * (length + 1), D).bfloat16()
    calls: dict[str, Callable[[], object]] = {"head": lambda: F.linear(rows, head)}
    for criterion in ("naive", "full"):
        rule = make_acceptor("dropmatch", heads=K, criterion=criterion)
        if rule.accept(proposal, view).num_accepted != length:
            raise SystemExit("a token was rejected: the rule would not judge all positions.")
        calls[criterion] = lambda rule=rule: rule.accept(proposal, view)
    best = fastest(calls)
    return {
        "num_draft_tokens": length,
        "draft_vocab_size": num_kept,
        **{f"{name}_ms": round(value, 2) for name, value in best.items()},
        **{f"{name}_ratio": round(best[name] / best["head"], 2) for name in ("naive", "full")},
    }


def main() -> None:
    """Prints the result and writes it beside this script."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    head = (torch.randn(V, D) * 0.2).bfloat16()
    with torch.inference_mode():
        cases = [measure(head, length, num_kept) for length in (3, 5) for num_kept in (6144, V)]
    result = {"torch": torch.__version__, "heads": K, "head_shape": [V, D], "cases": cases}
    text = json.dumps(result, indent=2)
    print(text)  # noqa: T201
    Path(__file__).with_name("last_result.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
