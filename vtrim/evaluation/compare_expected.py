"""What one draft's measurement and the cost model say of another draft, against what was measured.

The first draft's a0 (MATH.md section 3) and times are taken over; coverage and FLOPs are the second
draft's own. So nothing but the vocabulary is put to the test: does C(k) tell how acceptance falls,
and R(k) how drafting gets faster?
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtrim.evaluation.expected import chain_length, draft_seconds, exact_rule
from vtrim.evaluation.metrics import ratio
from vtrim.trimming.throughput import acceptance_of


def expected_change(
    a: Mapping[str, Any], b: Mapping[str, Any], names: tuple[str, str]
) -> dict[str, Any] | None:
    """Draft b as predicted from a, and as measured; None unless both are chains of one length.

    draft_step: share of a draft step's time that b saves. utility: of both, where both searches
    say, at one alpha. sentences: the same in words.
    """
    mine, yours = a.get("expected"), b.get("expected")
    first, second = exact_rule(a), exact_rule(b)
    alike = all(a.get(key) == b.get(key) for key in ("num_draft_tokens", "drafter", "batch_size"))
    if not mine or not yours or first is None or second is None:
        return None
    if not alike or not mine.get("acceptance_length"):
        return None
    if mine["draft_vocab_size"] == yours["draft_vocab_size"]:
        return None
    predicted, covered = _predicted(a, b, first)
    step = {
        "predicted": 1 - yours["draft_flops"] / mine["draft_flops"],
        "measured": _less(draft_seconds(second), draft_seconds(first)),
    }
    found = {
        "draft_vocab_size": [mine["draft_vocab_size"], yours["draft_vocab_size"]],
        "generated_coverage": covered,
        "draft_step": step,
        "acceptance_length": {
            "predicted": predicted["acceptance_length"],
            "measured": second["acceptance_length"],
        },
        "tokens_per_second_ratio": {
            "predicted": ratio(predicted["tokens_per_second"], first["tokens_per_second"]),
            "measured": ratio(second["speedup"], first["speedup"]),
        },
        "utility": _utilities(mine, yours),
    }
    return {**found, "sentences": _sentences(found, names)}


def _predicted(
    a: Mapping[str, Any], b: Mapping[str, Any], rule: Mapping[str, Any]
) -> tuple[dict[str, Any], list[float | None]]:
    """Length and speed [tokens/s] of b from those of a, and both coverages of the text."""
    drafted = a["num_draft_tokens"]
    covered = [one["expected"]["coverage"]["generated"] for one in (a, b)]
    step, rounds, length = draft_seconds(rule), rule["rounds"], rule["acceptance_length"]
    if None in (*covered, step, length) or not covered[0]:
        return {"acceptance_length": None, "tokens_per_second": None}, covered
    a0 = acceptance_of(length, drafted) / covered[0]
    expected = chain_length(a0 * covered[1], drafted)
    cheaper = b["expected"]["draft_flops"] / a["expected"]["draft_flops"]
    cycle = rule["seconds"] / rounds
    drafting = rule["seconds"] * rule["shares"]["draft"] / rounds
    faster = cycle - drafting * (1 - cheaper)
    return {"acceptance_length": expected, "tokens_per_second": expected / faster}, covered


def _utilities(mine: Mapping[str, Any], yours: Mapping[str, Any]) -> list[float] | None:
    """U of both at one alpha, from counted coverage; None where a search does not say."""
    alphas = mine.get("alpha"), yours.get("alpha")
    if None in alphas or alphas[0] != alphas[1]:
        return None
    return [mine["utility"], yours["utility"]]


def _less(new: float | None, old: float | None) -> float | None:
    quotient = ratio(new, old)
    return None if quotient is None else 1 - quotient


def _sentences(found: Mapping[str, Any], names: tuple[str, str]) -> list[str]:
    small = found["draft_vocab_size"]
    lines = [
        f"What {names[0]} (k = {small[0]:,}) and the cost model say of {names[1]} (k = "
        f"{small[1]:,}), if nothing but the vocabulary differs:"
    ]
    shown = (
        ("draft_step", "a draft step's time saved: {:.1%} by FLOPs, {:.1%} measured."),
        ("acceptance_length", "tokens a round: {:.2f} by coverage, {:.2f} measured."),
        ("tokens_per_second_ratio", "speed: {:.2f} times by the model, {:.2f} measured."),
    )
    for key, text in shown:
        pair = found[key]["predicted"], found[key]["measured"]
        if None not in pair:
            lines.append(text.format(*pair))
    measured = found["tokens_per_second_ratio"]["measured"]
    if found["utility"] is not None and measured is not None:
        first, second = found["utility"]
        agrees = (second > first) == (measured > 1)
        lines.append(
            f"utility: {first:.3f} to {second:.3f}, which {'agrees' if agrees else 'disagrees'} "
            "with the measured speed."
        )
    return lines
