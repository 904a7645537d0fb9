"""What the page's slider reads: everything about the vocabulary at each of about 130 sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from vtrim.errors import VtrimError
from vtrim.evaluation.report.facts import Facts
from vtrim.flops.times import StepTimes
from vtrim.trimming.analysis import (
    WITHIN,
    by_source,
    generated_coverage,
    heldout_band,
    miss_shares,
)
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.curve import CoverageCurve
from vtrim.trimming.settings import DEFAULT_NUM_DRAFT_TOKENS
from vtrim.trimming.throughput import DEFAULT_A0, ThroughputObjective

NUM_SIZES = 120
NEAR = 6  # tokens shown on each side of the edge
_COMMON = (4096, 8192, 16_384, 32_000, 32_768)  # of drafts that others publish
_ROUND = (1000, 2000, 4000, 8000, 16_000, 32_000, 64_000)

Explorer = dict[str, Any]


def explorer(facts: Facts) -> Explorer | None:
    """The slider's data; None where nothing was counted.

    k: sizes, ascending; start: index of the size shown first; domains: rows of the table, each
    with its coverage at every size; seats: [id, count, text] by seat, near every size; forced:
    forced tokens with the seat that their counts alone would give them.
    """
    coverage = facts.coverage
    if coverage is None or not coverage.total:
        return None
    forced = (facts.search or {}).get("forced", ())
    curve = coverage.curve(keep=[token for token in forced if token < coverage.tokenizer_length])
    sizes = _sizes(curve, facts)
    start = _nearest(sizes, facts.search["k"]) if facts.search else _knee(curve, sizes)
    return {
        "k": sizes,
        "start": start,
        "coverage": [_short(curve.coverage(k)) for k in sizes],
        **_heldout(coverage, curve, sizes),
        **_worth(curve, facts.search, sizes),
        **_speeds(curve, facts, sizes),
        "domains": list(_domains(coverage, curve, sizes)),
        "seats": _seats(curve, sizes, facts.token_texts),
        "forced": _forced(curve, facts.token_texts),
        "rows": coverage.target_vocab_size,
        "by_source": bool(coverage.by_source),
    }


def static_sizes(found: Explorer) -> list[int]:
    """Indices of the sizes that the domain table always shows: the first one and two round ones."""
    start, sizes = found["start"], found["k"]
    larger = [i for i, k in enumerate(sizes) if k in _ROUND and i > start]
    smaller = [i for i, k in enumerate(sizes) if k in _ROUND and i < start]
    return [*smaller[-1:], start, *larger[1:2]]


def quoted(text: str | None) -> str:
    """A token's text between quotes, with what cannot be seen written as escapes."""
    return "?" if text is None else repr(text)


def _sizes(curve: CoverageCurve, facts: Facts) -> list[int]:
    """Log-spaced sizes, usual ones, the run's and its draft's, and all that the search names."""
    search = facts.search
    first = max(1, curve.num_forced)
    found = set(np.geomspace(first, curve.max_k, NUM_SIZES).round().astype(int).tolist())
    found |= {*_ROUND, *_COMMON}
    own = None if facts.vocab is None else facts.vocab.size
    found |= {size for size in (own, facts.draft_size) if size}
    if search is not None:
        rows = [*(search.get("pareto") or {}).get("points", ())]
        rows += (search.get("alpha_curve") or {}).get("rows", ())
        rows += (search.get("throughput") or {}).get("a0_curve", ())
        rows += [point for point in (search["exact"], search["tpe"]) if point]
        found |= {int(row["k"]) for row in rows} | {int(search["k"])}
    return sorted(k for k in found if first <= k <= curve.max_k)


def _nearest(sizes: Sequence[int], k: int) -> int:
    """Index of a size; of the nearest one where the counts, made anew, do not reach so far."""
    return min(range(len(sizes)), key=lambda i: abs(sizes[i] - k))


def _knee(curve: CoverageCurve, sizes: Sequence[int]) -> int:
    """Where the slider stands before anything was searched: the first size that covers 95 %."""
    return next((i for i, k in enumerate(sizes) if curve.coverage(k) >= 0.95), len(sizes) - 1)


def _heldout(coverage: Coverage, curve: CoverageCurve, sizes: Sequence[int]) -> Explorer:
    """Held-out coverage with its interval, and first misses."""
    if not curve.heldout_total:
        return {}
    found: Explorer = {"heldout": [_short(curve.heldout_coverage(k) or 0.0) for k in sizes]}
    band = heldout_band(coverage, curve, sizes)
    if band:
        found["low"] = [_short(interval.low) for interval in band]
        found["high"] = [_short(interval.high) for interval in band]
        found["conversations"] = band[0].conversations
    shares = miss_shares(coverage, curve, sizes, WITHIN)
    if shares is not None:
        found["misses"] = [
            {"within": n, "share": [_short(share) for share in row]}
            for n, row in zip(WITHIN, shares.tolist(), strict=True)
        ]
    return found


def _worth(
    curve: CoverageCurve, search: Mapping[str, Any] | None, sizes: Sequence[int]
) -> Explorer:
    """R(k) and U(k), as the search counts them."""
    if search is None:
        return {}
    alpha, rows = search["alpha"], search["shape"]["target_vocab_size"]
    saved = [search["flops_per_row"] * (rows - k) / search["flops_full"] for k in sizes]
    worth = [alpha * curve.coverage(k) + (1 - alpha) * r for k, r in zip(sizes, saved, strict=True)]
    return {
        "reduction": [_short(value) for value in saved],
        "utility": [_short(value) for value in worth],
        "alpha": alpha,
    }


def _speeds(curve: CoverageCurve, facts: Facts, sizes: Sequence[int]) -> Explorer:
    """Expected tokens per second, from the search's times, else from those measured in the run."""
    search = facts.search
    if search is None:
        return {}
    given = search.get("throughput")
    a0 = float(given["a0"]) if given else DEFAULT_A0
    times = StepTimes(**given["times"]) if given else _measured(facts)
    if times is None:
        return {}
    objective = ThroughputObjective(
        curve=curve,
        target_vocab_size=search["shape"]["target_vocab_size"],
        flops_full=search["flops_full"],
        flops_per_row=search["flops_per_row"],
        alpha=Fraction(0),
        cmin=Fraction(0),
        kmin=1,
        kmax=curve.max_k,
        times=times,
        a0=a0,
    )
    return {
        "speed": [float(f"{objective.value(k):.4g}") for k in sizes],
        "speed_note": f"expected; a0 {a0:g}, {times.num_draft_tokens} drafted, {times.source}",
    }


def _measured(facts: Facts) -> StepTimes | None:
    """Times of this machine; None where there are none or none for the usual round."""
    if facts.step_times is None:
        return None
    try:
        return StepTimes.from_measurement(
            facts.step_times,
            num_draft_tokens=DEFAULT_NUM_DRAFT_TOKENS,
            origin="step_times.json",
        )
    except VtrimError:
        return None


def _domains(
    coverage: Coverage, curve: CoverageCurve, sizes: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """All rows, each source, and text that the target wrote."""
    yield _domain("all rows", coverage.total, 1.0, [curve.coverage(k) for k in sizes])
    found = [by_source(coverage, curve, k) for k in sizes]
    for sources in zip(*found, strict=True):  # one source at every size
        name = sources[0].name or "(rows without a source)"
        shares = [source.coverage for source in sources]
        yield _domain(name, sources[0].tokens, sources[0].share, shares)
    if coverage.generated_counts is not None and coverage.generated_counts.any():
        written = [generated_coverage(coverage, curve, k) or 0.0 for k in sizes]
        tokens = int(coverage.generated_counts.sum())
        yield _domain("written by the target", tokens, None, written)


def _domain(
    name: str, tokens: int, share: float | None, coverage: Sequence[float]
) -> dict[str, Any]:
    shown = [_short(covered) for covered in coverage]
    return {"name": name, "tokens": tokens, "share": share, "coverage": shown}


def _seats(curve: CoverageCurve, sizes: Sequence[int], texts: Mapping[str, str]) -> dict[str, Any]:
    """[id, count, text] of the seats next to each size, forced ones left out."""
    first = curve.num_forced
    wanted = {
        seat
        for k in sizes
        for seat in range(max(first, k - NEAR), min(k + NEAR, curve.max_k))
        if curve.seat_counts[seat]
    }
    return {str(seat): _token(curve, int(curve.order[seat]), texts) for seat in sorted(wanted)}


def _forced(curve: CoverageCurve, texts: Mapping[str, str]) -> list[list[Any]]:
    """[id, count, text, seat by count from 1] of each forced token; seat 0: it has none."""
    by_count = replace(curve, forced_ids=()).order
    seat_of = np.zeros(curve.counts.size, dtype=np.int64)
    seat_of[by_count] = np.arange(1, by_count.size + 1)
    return [[*_token(curve, token, texts), int(seat_of[token])] for token in curve.forced]


def _token(curve: CoverageCurve, token: int, texts: Mapping[str, str]) -> list[Any]:
    return [token, int(curve.counts[token]), quoted(texts.get(str(token)))]


def _short(share: float) -> float:
    """A share with the digits that a page can show."""
    return round(share, 5)
