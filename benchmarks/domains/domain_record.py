"""What the runs of run.py gave, folded into one small file: benchmarks/results/domains.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from vtrim.trimming.coverage import Coverage
from vtrim.vocab import DraftVocab

COLUMNS = ("emitted", "rounds", "seconds", "plain_emitted", "plain_seconds")
SAME = ("temperature", "dtype", "device", "num_draft_tokens", "batch_size")
Line = dict[str, Any]


def fold(folder: Path) -> Line:
    """Everything the page needs from a folder of run.py.

    The process stops where results of a domain are not of the same prompts, target and settings,
    or where there is none.
    """
    files = sorted((folder / "results").glob("*--*--*.json"))
    if not files:
        raise SystemExit(f"{folder}/results: no DRAFT--DOMAIN--REPEAT.json. Run run.py eval.")
    found = [(*path.stem.split("--"), _read(path)) for path in files]
    check(found)
    drafts = sorted({name for name, *_ in found})
    results = [
        {"draft": draft, "domain": domain, "repeat": int(repeat), **numbers(result)}
        for draft, domain, repeat, result in found
    ]
    return {
        "facts": facts(found[0][-1]),
        "drafts": {name: training(folder / "runs" / name) for name in drafts},
        "results": results,
    }


def check(found: Sequence[tuple[str, str, str, Line]]) -> None:
    """Refuses results that must not stand side by side."""
    first: dict[str, tuple[str, Any]] = {}
    for draft, domain, repeat, result in found:
        decided = {
            "target": result["provenance"]["target_config_fingerprint"],
            "prompts": result["provenance"]["prompts_fingerprint"],
            "prompt lengths": [one["prompt_tokens"] for one in result["per_prompt"]],
            "max_new_tokens": result["settings"]["max_new_tokens"],
            "acceptor": result["settings"]["acceptor"],
            **{name: result[name] for name in SAME},
            "clock": clock(result),
        }
        name = f"{draft}--{domain}--{repeat}"
        for what, value in decided.items():
            other, known = first.setdefault(f"{domain} {what}", (name, value))
            if known != value:
                raise SystemExit(f"{name}: {what} differ from those of {other}. Measure it again.")


def clock(result: Line) -> str:
    """Whose seconds a result has: run.py notes it, `vtrim eval` by itself takes the wall clock."""
    return str(result.get("clock", "wall"))


def facts(result: Line) -> Line:
    """What all results have in common."""
    provenance, settings = result["provenance"], result["settings"]
    names = ("vtrim", "target", "target_config_fingerprint", "forward", "torch", "machine")
    return {
        **{name: provenance[name] for name in names},
        **{name: result[name] for name in SAME},
        "acceptor": settings["acceptor"]["name"],
        "max_new_tokens": settings["max_new_tokens"],
        "threads": settings["threads"],
        "clock": clock(result),
    }


def numbers(result: Line) -> Line:
    """A result's own numbers: a list a column, one value a prompt, and where the time went."""
    columns = zip(*map(_row, result["per_prompt"]), strict=True)
    return {
        **{name: list(column) for name, column in zip(COLUMNS, columns, strict=True)},
        "by_position": [round(share, 4) for share in result["acceptance_by_position"]],
        "shares": {name: round(share, 4) for name, share in result["shares"].items()},
        "identical_to_plain": result["identical_to_plain"],
    }


def _row(one: Line) -> tuple[float, ...]:
    """Counts of the rounds only: the prefill gives the first token of a reply."""
    seconds, plain = round(one["seconds"], 5), round(one["plain_seconds"], 5)
    return one["tokens"] - 1, one["rounds"], seconds, one["plain_tokens"] - 1, plain


def training(run: Path) -> Line:
    """How a draft came to be, from its run folder."""
    steps = _read(run / "run.json")["steps"]
    coverage = Coverage.load(run / "coverage.npz")
    vocab = vocab_of(run / "draft")
    searched, trained = steps["search"], steps["train-draft"]
    chosen_here = vocab.fingerprint == searched["vocab_fingerprint"]
    apart = (
        searched["heldout_coverage"] if chosen_here else share(coverage.heldout_counts, vocab.ids)
    )
    return {
        "k": vocab.size,
        "target_vocab_size": vocab.target_vocab_size,
        "rows": coverage.rows_used,
        "reply_tokens": coverage.total,
        "coverage": share(coverage.counts, vocab.ids),
        "heldout_coverage": apart,  # a vocabulary chosen here: its size, chosen without those rows
        **{name: searched[name] for name in ("alpha", "cmin", "flops_full", "flops_per_row")},
        **{name: trained[name] for name in ("steps", "tokens", "seconds", "heldout_joint_prefix")},
        **{name: trained[name] for name in ("oov_share", "draft_fingerprint", "settings")},
    }


def vocab_of(draft: Path) -> DraftVocab:
    """The vocabulary of a draft folder: its d2t, or without one every row of the target's head."""
    config = _read(draft / "config.json")
    with safe_open(draft / "model.safetensors", framework="numpy") as tensors:
        if "d2t" not in tensors.keys():  # noqa: SIM118 - no mapping
            return DraftVocab.full(config["vocab_size"])
        d2t = tensors.get_tensor("d2t")
    return DraftVocab.of((d2t + np.arange(d2t.size)).tolist(), config["vocab_size"])


def share(counts: Any, ids: Any) -> float | None:
    """Share of the counted tokens that are in a vocabulary; None where nothing was counted."""
    total = int(counts.sum())
    return round(int(counts[ids].sum()) / total, 6) if total else None


def _read(path: Path) -> Line:
    content: Line = json.loads(path.read_text(encoding="utf-8"))
    return content
