"""What search, cost model and training expected of a draft, beside what decoding measured.

Only of an EAGLE chain of fixed length: the model of MATH.md section 3 says nothing of trees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vtrim.errors import OptionError
from vtrim.evaluation.metrics import ratio
from vtrim.flops.cost import draft_flops
from vtrim.flops.times import StepTimes
from vtrim.shape import DraftShape
from vtrim.trimming.throughput import DEFAULT_A0, acceptance_of


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known of a draft before it decodes; empty where the run does not say.

    shape: of the draft; size: rows of its head. search: of search.json, when it chose the draft's
    vocabulary. prefixes: share of the held-out rows whose first 1, 2, .. draft tokens were right at
    the end of training, when that made the draft. step_times: of ``vtrim flops --measure``.
    """

    shape: DraftShape
    size: int
    search: Mapping[str, Any] = field(default_factory=dict)
    prefixes: Sequence[float] = ()
    step_times: Mapping[str, Any] = field(default_factory=dict)
    times_origin: str = ""


def expected(evidence: Evidence, result: Mapping[str, Any]) -> dict[str, Any]:
    """Expected and measured, side by side; None where nothing is expected or nothing known.

    result: of ``vtrim eval``; its exact rule counts.
    """
    rule = exact_rule(result)
    full = draft_flops(evidence.shape).total
    own = draft_flops(evidence.shape, evidence.size).total
    search = evidence.search
    models = rule is not None and result["drafter"] == "eagle" and not _adaptive(result)
    times, note = _times(evidence, result) if models else (None, None)
    return {
        "draft_vocab_size": evidence.size,
        "draft_flops": own,
        "flops_reduction": 1 - own / full,
        "alpha": search.get("alpha"),
        "utility": search.get("utility"),
        "coverage": {
            "counted": search.get("coverage"),
            "heldout": search.get("heldout_coverage"),
            "generated": result["plain"]["generated_coverage"],
        },
        "acceptance_length": _lengths(evidence, rule, result) if models and rule else None,
        "times": None if times is None else times.source,
        "times_note": note,
        **(_speeds(evidence, times, rule, result) if models and rule else {}),
    }


def exact_rule(result: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The numbers of exact acceptance in a result; None where it was not measured."""
    if result["lossless"]:
        return result
    exact: Mapping[str, Any] | None = result.get("exact")
    return exact


def draft_seconds(rule: Mapping[str, Any]) -> float | None:
    """Measured time of drafting a token [s]."""
    return ratio(rule["seconds"] * rule["shares"]["draft"], rule["drafted"])


def chain_length(acceptance: float, num_draft_tokens: int) -> float:
    """Tokens a round, 1 + a + .. + a^L, when each drafted one is accepted by chance a."""
    return float(sum(acceptance**drafted for drafted in range(num_draft_tokens + 1)))


def _adaptive(result: Mapping[str, Any]) -> bool:
    return bool(result["settings"]["adaptive"])


def _lengths(
    evidence: Evidence, rule: Mapping[str, Any], result: Mapping[str, Any]
) -> dict[str, Any]:
    """Tokens a round: by training, by the model a = a0 C, and measured.

    by_training: 1 + the held-out prefixes (greedy; rounds restart at hard places, so decoding gives
    less). by_model: with the search's a0, or the usual one, and held-out coverage. a0_measured: the
    a0 that gives the measured length with the coverage of the text that was really written.
    """
    drafted, measured = result["num_draft_tokens"], rule["acceptance_length"]
    a0 = (evidence.search.get("throughput") or {}).get("a0", DEFAULT_A0)
    heldout = evidence.search.get("heldout_coverage")
    generated = result["plain"]["generated_coverage"]
    known = result["temperature"] == 0 and len(evidence.prefixes) >= drafted > 0
    found = None if measured is None or not drafted else acceptance_of(measured, drafted)
    return {
        "measured": measured,
        "by_training": 1 + sum(evidence.prefixes[:drafted]) if known else None,
        "by_model": None if heldout is None else chain_length(a0 * heldout, drafted),
        "a0": a0,
        "a0_measured": ratio(found, generated),
    }


def _times(evidence: Evidence, result: Mapping[str, Any]) -> tuple[StepTimes | None, str | None]:
    """The run's step times, where they are of such rounds; else why not."""
    if not evidence.step_times:
        return None, "no step times: `vtrim flops --measure` makes them"
    if result["batch_size"] > 1:
        return None, "the step times are of one sequence, not of a batch"
    for name in ("dtype", "device"):
        timed = evidence.step_times.get(name)
        if timed != result[name]:
            return None, f"the step times are of {name} {timed}, not of {result[name]}"
    drafted, origin = result["num_draft_tokens"], evidence.times_origin
    try:
        return StepTimes.from_measurement(
            evidence.step_times, num_draft_tokens=drafted, origin=origin
        ), None
    except OptionError as error:
        return None, str(error)


def _speeds(
    evidence: Evidence,
    times: StepTimes | None,
    rule: Mapping[str, Any],
    result: Mapping[str, Any],
) -> dict[str, Any]:
    """Tokens per second and the times of a round's parts [s], expected and measured.

    by_length: of the cost model with the measured length, so that only its times are put to the
    test; by_model: with the expected length too.
    """
    lengths = _lengths(evidence, rule, result)
    cycle = None if times is None else times.cycle_s(evidence.size)
    return {
        "tokens_per_second": {
            "measured": rule["tokens_per_second"],
            "by_model": ratio(lengths["by_model"], cycle),
            "by_length": ratio(lengths["measured"], cycle),
            "plain": result["plain_tokens_per_second"],
            "plain_by_model": None if times is None else 1 / times.plain_s,
        },
        "draft_seconds": {
            "measured": draft_seconds(rule),
            "expected": None if times is None else times.draft_s(evidence.size),
        },
        "verify_seconds": {
            "measured": ratio(rule["seconds"] * rule["shares"]["verify"], rule["rounds"]),
            "expected": None if times is None else times.verify_s,
        },
    }
