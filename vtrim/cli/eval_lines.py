"""The lines below the table of ``vtrim eval`` that say how far its numbers can be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vtrim.evaluation.report.conditions import noise_said

Numbers = Mapping[str, Any]
_SHOWN_MISSING = 5


def statistics(result: Numbers, rules: Mapping[str, Numbers]) -> Iterator[str]:
    """Intervals, causes of rejection, coverage, expectation and noise, as far as measured.

    rules: the numbers of each measured rule, by the name that the table gives it.
    """
    for name, numbers in rules.items():
        yield from _intervals(name, numbers)
    for name, numbers in rules.items():
        yield from _causes(name, numbers)
    yield from _coverage(result)
    yield from (one["sentence"] for one in result.get("against_exact", []))
    yield from _expected(result.get("expected") or {})
    yield from _repeats(result)
    yield from _noise(result)


def _intervals(name: str, numbers: Numbers) -> Iterator[str]:
    length, speed, pace = (
        numbers.get(f"{key}_interval")
        for key in ("acceptance_length", "tokens_per_second", "seconds_per_token")
    )
    if length and speed and pace:
        yield (
            f"95 % intervals over prompts ({name}): acceptance length {length[0]:.2f}-"
            f"{length[1]:.2f}, tokens/s {speed[0]:.1f}-{speed[1]:.1f}, a prompt's time per token "
            f"{1000 * pace[0]:.1f}-{1000 * pace[1]:.1f} ms (mean "
            f"{1000 * numbers['seconds_per_token']:.1f} ms)."
        )


def _causes(name: str, numbers: Numbers) -> Iterator[str]:
    causes = numbers.get("rejections")
    if not causes or not numbers["rejected_rounds"]:
        return
    words = {
        "out_of_vocabulary": "the target's token is not in the draft's vocabulary",
        "wrong_token": "the draft had another token",
        "sampling": "the draw went against the likeliest one",
    }
    total = numbers["rejected_rounds"]
    said = ", ".join(
        f"{100 * causes[cause] / total:.1f} % {text}"
        for cause, text in words.items()
        if causes[cause]
    )
    yield f"{total:,} of {numbers['rounds']:,} rounds rejected a token ({name}): {said}."


def _coverage(result: Numbers) -> Iterator[str]:
    share = (result.get("plain") or {}).get("generated_coverage")
    if share is None or share == 1:
        return
    missing = result.get("missing_tokens", [])[:_SHOWN_MISSING]
    often = ", ".join(
        (repr(one["text"]) if "text" in one else f"id {one['id']}") + f" ({one['count']})"
        for one in missing
    )
    yield (
        f"The draft can write {100 * share:.1f} % of the tokens of plain decoding's replies; it "
        f"lacks most often {often}."
    )


def _expected(expected: Numbers) -> Iterator[str]:
    length = expected.get("acceptance_length") or {}
    guesses = []
    if length.get("by_training") is not None:
        guesses.append(f"{length['by_training']:.2f} by training's held-out rows")
    if length.get("by_model") is not None:
        heldout = expected["coverage"]["heldout"]
        guesses.append(f"{length['by_model']:.2f} by a0 {length['a0']:g} x coverage {heldout:.3f}")
    if guesses and length["measured"] is not None:
        found = length["a0_measured"]
        a0 = "" if found is None else f" (a0 {found:.2f})"
        yield (
            f"Expected tokens a round of exact acceptance: {', '.join(guesses)}; measured "
            f"{length['measured']:.2f}{a0}."
        )
    speed = expected.get("tokens_per_second") or {}
    if speed.get("by_length") is not None and speed["measured"] is not None:
        model = speed["by_model"]
        alone = "" if model is None else f", {model:.1f} with the expected length"
        yield (
            f"Expected tokens/s by `vtrim flops --measure`: {speed['by_length']:.1f} with the "
            f"measured length{alone}; measured {speed['measured']:.1f}. Plain: "
            f"{speed['plain_by_model']:.1f}, measured {speed['plain']:.1f}."
        )


def _repeats(result: Numbers) -> Iterator[str]:
    repeats, same = result.get("repeats", 1), result.get("same_replies")
    if repeats > 1:
        said = (
            "" if same is None else f" ({100 * same:.0f} % of the replies were the same each time)"
        )
        yield f"Of {repeats} repeats each prompt's median run counts{said}."


def _noise(result: Numbers) -> Iterator[str]:
    said = noise_said(result)
    if said:
        repeated = result["noise"].get("plain_spread") is not None
        more = "" if repeated else " (--repeats 3 tells more)"
        yield f"Noise of the machine: {'; '.join(said)}{more}."
