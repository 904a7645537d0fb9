"""Cost of DropMatch's acceptance, as a ratio to one head product over its K * (L + 1) stacked rows.

    OMP_NUM_THREADS=1 python benchmarks/dropmatch/bench.py

Head of SmolLM2-135M [49152, 576] in bf16, one thread, K = 5, drafts over 6,144 and all ids. Every
drafted token is accepted, so that all L positions are judged, but in ``rejected``, whose first
token is. A tree of 60 nodes is walked down one path. ``auto`` chooses p from 64 positions, once a
run. Times are CPU time, the minimum of many calls that alternate between the rules [ms].
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
from vtrim.decoding.acceptors.calibration import POSITIONS
from vtrim.decoding.protocol import Proposal, Verification

V, D, K, P, CALLS = 49152, 576, 5, 0.05, 40
Call = Callable[[], object]


def fastest(turns: dict[str, Call], calls: int = CALLS) -> dict[str, float]:
    """The least CPU time of each call [ms]; the calls take turns."""
    best = dict.fromkeys(turns, float("inf"))
    for _ in range(calls):
        for name, call in turns.items():
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


def accepting(proposal: Proposal, view: Verification, kept: int, criterion: str) -> Call:
    """A call of the rule that keeps so many tokens."""
    rule = make_acceptor("dropmatch", heads=K, p_drop=P, criterion=criterion)
    found = rule.accept(proposal, view).num_accepted
    if found != kept:
        raise SystemExit(f"{criterion} kept {found} tokens, not {kept}: another case was meant.")
    return lambda: rule.accept(proposal, view)


def measure(head: Tensor, length: int, num_kept: int) -> dict[str, object]:
    """Ratios of naive and full acceptance to the head product."""
    proposal, view = case(head, length, num_kept)
    wrong = proposal.tokens.clone()
    wrong[0] = proposal.vocab_ids[~torch.isin(proposal.vocab_ids, proposal.tokens)][0]
    rejected = Proposal(wrong, None, proposal.log_q_soft.roll(1, -1), proposal.vocab_ids)
    rows = torch.randn(K * (length + 1), D).bfloat16()
    calls: dict[str, Call] = {"head": lambda: F.linear(rows, head)}
    for criterion in ("naive", "full", "js"):
        calls[criterion] = accepting(proposal, view, length, criterion)
    calls["rejected_naive"] = accepting(rejected, view, 0, "naive")
    calls["rejected_full"] = accepting(rejected, view, 0, "full")
    return {
        "num_draft_tokens": length,
        "draft_vocab_size": num_kept,
        **reported(fastest(calls)),
    }


def measure_tree(head: Tensor) -> dict[str, object]:
    """Cost of naive acceptance on a tree of 60 nodes whose path of 5 first children is kept."""
    depth, width = 5, 12
    parents = [-1 if at < width else (at // width - 1) * width for at in range(depth * width)]
    hidden = torch.randn(len(parents) + 1, D).bfloat16()
    logits = F.linear(hidden, head).float()
    tokens = torch.randint(V, (len(parents),))
    tokens[::width] = logits[[parents[at] + 1 for at in range(0, len(parents), width)]].argmax(-1)
    law = torch.zeros(len(parents), 6144).log_softmax(-1)
    proposal = Proposal(tokens, None, law, torch.arange(6144), tuple(parents))
    view = Verification(hidden, logits, lambda h: F.linear(h, head), 0.0, 100, 0)
    rows = torch.randn(K * (depth + 1), D).bfloat16()
    calls: dict[str, Call] = {
        "head": lambda: F.linear(rows, head),
        "naive": accepting(proposal, view, depth, "naive"),
    }
    return {"nodes": len(parents), "depth": depth, **reported(fastest(calls))}


def calibration_ms(head: Tensor) -> float:
    """Time of choosing p once, from the paper's highest p down to the chosen one [ms]."""
    hidden = torch.randn(POSITIONS, D).bfloat16()

    def choose() -> None:
        make_acceptor("dropmatch", p_drop="auto").begin(hidden, lambda h: F.linear(h, head), 0)

    return round(fastest({"auto": choose}, calls=5)["auto"], 1)


def reported(best: dict[str, float]) -> dict[str, float]:
    """Times [ms] and their ratios to the head product."""
    times = {f"{name}_ms": round(value, 2) for name, value in best.items()}
    ratios = {name: round(value / best["head"], 2) for name, value in best.items()}
    return {**times, **{f"{name}_ratio": ratios[name] for name in ratios if name != "head"}}


def main() -> None:
    """Prints the result and writes it beside this script."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    head = (torch.randn(V, D) * 0.2).bfloat16()
    with torch.inference_mode():
        cases = [measure(head, length, num_kept) for length in (3, 5) for num_kept in (6144, V)]
        tree, auto = measure_tree(head), calibration_ms(head)
    result = {
        "torch": torch.__version__,
        "heads": K,
        "head_shape": [V, D],
        "cases": cases,
        "tree": tree,
        "auto_ms": auto,
    }
    text = json.dumps(result, indent=2)
    print(text)  # noqa: T201
    Path(__file__).with_name("last_result.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
