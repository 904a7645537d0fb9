"""Every number of docs/results/coverage.md, from the chat files and Llama 3.1's tokenizer."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from domains import DOMAINS, Row, coverage_of, drawn, read_domains, read_foreign
from study import Study

from vtrim.shape import DraftShape
from vtrim.trimming.analysis import (
    by_source,
    covered_share,
    cross_coverage,
    first_miss,
    heldout_interval,
)

PAPER = {"general chat": 13_264, "NER": 6_521, "function calling": 4_380}
ALPHAS = ("0.5", "0.6", "0.7")
CHOICES = {"paper": ("0.5", "0"), "default": ("0.6", "0.95")}  # presets of `vtrim search`
SIZES = (1_000, 3_000, 10_000)
SEEDS = range(5)
WITHIN = (16, 64, 256, 1024)
Record = dict[str, Any]


def measure(data: Path, tokenizer: Any) -> Record:
    """All numbers of the page, by the names that its tables look for."""
    config = Path(__file__).with_name("llama31_8b.json").read_text(encoding="utf-8")
    shape = DraftShape.from_target_config(json.loads(config))
    rows = read_domains(data, tokenizer)
    studies = {name: Study(coverage_of(part), shape) for name, part in rows.items()}
    everything = Study(coverage_of([row for part in rows.values() for row in part]), shape)
    foreign = {name: coverage_of(part) for name, part in read_foreign(data, tokenizer).items()}
    one = next(iter(studies.values()))
    return {
        "files": DOMAINS,
        "seeds": len(SEEDS),
        "prices": {alpha: one.price(alpha) for alpha in ALPHAS},
        "studies": {name: _study(name, study) for name, study in studies.items()},
        "cross": _cross({**studies, "all three": everything}),
        "foreign": _foreign(studies["general chat"], foreign),
        "stability": {name: _stability(part, shape) for name, part in rows.items()},
    }


def both(study: Study) -> dict[str, int]:
    """k* at both presets."""
    return {preset: study.best(*choice) for preset, choice in CHOICES.items()}


def _study(name: str, study: Study) -> Record:
    coverage, counts = study.coverage, study.coverage.counts
    k = study.best(*CHOICES["default"])
    return {
        "rows": coverage.rows_used,
        "heldout": coverage.rows_heldout,
        "tokens": coverage.total,
        "distinct": coverage.distinct,
        "once": int((counts == 1).sum()),
        "k": {alpha: [study.best(alpha, cmin) for cmin in ("0", "0.95")] for alpha in ALPHAS},
        "paper_k": PAPER[name],
        "paper_alpha": study.alpha_of(PAPER[name]),
        "presets": {preset: _at(study, k) for preset, k in both(study).items()},
        "sources": [
            [source.name, source.tokens, source.share, source.coverage]
            for source in by_source(coverage, study.curve, k)
        ],
    }


def _at(study: Study, k: int) -> Record:
    """In-sample and held-out coverage of a size, and how soon a conversation misses a token."""
    interval = heldout_interval(study.coverage, study.curve, k)
    miss = first_miss(study.coverage, study.curve, k, WITHIN)
    return {
        "k": k,
        "coverage": study.curve.coverage(k),
        "heldout_coverage": study.curve.heldout_coverage(k),
        "interval": [interval.low, interval.high] if interval else None,
        "saved": study.saved(k),
        "miss": None
        if miss is None
        else {
            "within": {str(n): miss.within[n] for n in WITHIN},
            "never": miss.never,
            "tokens": miss.tokens_per_miss,
        },
    }


def _cross(studies: Mapping[str, Study]) -> Record:
    """C of the vocabulary of one data set on the text of another, by preset."""
    curves = {name: study.curve for name, study in studies.items()}
    found: Record = {}
    for preset, choice in CHOICES.items():
        sizes = {name: study.best(*choice) for name, study in studies.items()}
        shares = cross_coverage(curves, sizes)
        found[preset] = {name: {"k": sizes[name], "on": dict(shares[name])} for name in studies}
    return found


def _foreign(chat: Study, foreign: Mapping[str, Any]) -> Record:
    """What the general-chat vocabulary covers of replies in other languages."""
    sizes = {f"{preset}, k* {k:,}": k for preset, k in both(chat).items()} | {"k 32,000": 32_000}
    return {
        name: {
            "tokens": coverage.total,
            "shares": {
                size: covered_share(chat.curve.order[:k], coverage.counts)
                for size, k in sizes.items()
            },
        }
        for name, coverage in foreign.items()
    }


def _stability(rows: Sequence[Row], shape: DraftShape) -> list[Record]:
    """k* of parts of the data, and what their vocabularies cover of the rest."""
    found: list[Record] = []
    for size in (size for size in SIZES if size < len(rows)):
        draws = [_draw(rows, size, seed, shape) for seed in SEEDS]
        tokens, paper, on_rest, default, default_on_rest = zip(*draws, strict=True)
        found.append(
            {
                "rows": size,
                "tokens": statistics.mean(tokens),
                "first": Study(coverage_of(rows[:size]), shape).best(*CHOICES["paper"]),
                "paper": [statistics.mean(paper), min(paper), max(paper)],
                "paper_on_rest": statistics.mean(on_rest),
                "default": statistics.mean(default),
                "default_on_rest": statistics.mean(default_on_rest),
            }
        )
    return found


def _draw(
    rows: Sequence[Row], size: int, seed: int, shape: DraftShape
) -> tuple[int, int, float, int, float]:
    """Tokens of a random part, and at both presets k* and its coverage of the rest."""
    part, rest = drawn(rows, size, seed)
    study, others = Study(coverage_of(part), shape), coverage_of(rest)
    sizes = both(study)
    shares = [covered_share(study.curve.order[:k], others.counts) or 0.0 for k in sizes.values()]
    return study.coverage.total, sizes["paper"], shares[0], sizes["default"], shares[1]
