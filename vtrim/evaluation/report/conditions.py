"""What measured numbers are worth: noise, intervals, other engines, what was expected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vtrim.evaluation.report.parts import Grid
from vtrim.evaluation.report.rules import UNKNOWN, Measured, decimal, percent, with_interval

Evals = Mapping[str, Mapping[str, Any]]


def noise_lines(evals: Evals) -> list[str]:
    """A sentence for each result that looked at the machine's noise."""
    return [
        f"{name}: {'; '.join(said)}."
        for name, result in evals.items()
        if (said := noise_said(result))
    ]


def noise_said(result: Mapping[str, Any]) -> list[str]:
    """How far the same work lay apart while a result was measured, in words."""
    noise, said = result.get("noise") or {}, []
    if noise.get("plain_spread") is not None:
        spread = percent(noise["plain_spread"])
        said.append(
            f"plain decoding's speed lay {spread} apart over {result.get('repeats')} repeats"
        )
    if noise.get("kernel_spread") is not None:
        said.append(
            f"a fixed kernel, timed {noise['kernel_looks']:,} times in between, spread by "
            f"{percent(noise['kernel_spread'])} and drifted by {100 * noise['kernel_drift']:+.1f} %"
        )
    return said


def said_grid(evals: Evals) -> Grid:
    """The lossy rules against exact acceptance, in words."""
    return Grid(
        name="said",
        title="The lossy rule against exact acceptance",
        text="The same prompts in pairs: intervals by bootstrap over prompts, p by a permutation "
        "test.",
        columns=("run", "what was found"),
        rows=[
            [name, str(one["sentence"])]
            for name, result in evals.items()
            for one in result.get("against_exact") or ()
        ],
        names=2,
        wraps=True,
    )


def rates_grid(rules: Sequence[Measured]) -> Grid:
    """Every rate with its interval."""
    known = [rule for rule in rules if rule.numbers.get("seconds_per_token") is not None]
    return Grid(
        name="rates",
        title="Rates with their intervals",
        text="95 % intervals, prompts drawn anew. Latency is the mean over prompts, each counting "
        "the same; tokens/s weighs prompts by their time.",
        columns=("rule", "tokens/round", "tokens/s", "latency [ms/token]", "speed-up"),
        rows=[
            [
                rule.text,
                with_interval(rule.numbers, "acceptance_length"),
                with_interval(rule.numbers, "tokens_per_second", 1),
                with_interval(rule.numbers, "seconds_per_token", 2, 1000),
                with_interval(rule.numbers, "speedup"),
            ]
            for rule in known
        ],
    )


def engines_grid(evals: Evals) -> Grid | None:
    """Every engine's row; None where only vtrim's own decoding was measured."""
    if not any(result.get("engine") for result in evals.values()):
        return None
    sets: dict[str, str] = {}
    return Grid(
        name="engines",
        title="The same prompts in other engines",
        text="Exact acceptance where it was measured. Rows with the same letter decoded the same "
        "prompts. Tokens/round: tokens emitted per target forward, prefill left out, however "
        "an engine counts; its own number stands beside it. Speed-ups are over the same engine "
        "without a draft.",
        columns=("run", "engine", "prompts", "tokens/round", "by its own count", "tokens/s",
                 "without a draft", "speed-up", "identical to plain"),
        rows=[_engine_cells(name, result, sets) for name, result in evals.items()],
        names=2,
    )  # fmt: skip


def _engine_cells(name: str, result: Mapping[str, Any], sets: dict[str, str]) -> list[str]:
    engine = result.get("engine") or {"name": "vtrim"}
    asked = [row.get("prompt") for row in result.get("per_prompt") or ()]
    letter = f" ({_letter(sorted(asked), sets)})" if all(asked) else ""
    rule = (not result.get("lossless") and result.get("exact")) or result
    return [
        name,
        " ".join(str(engine[key]) for key in ("name", "version") if engine.get(key)),
        f"{decimal(result.get('prompts'), 0)}{letter}",
        with_interval(rule, "acceptance_length"),
        decimal(engine.get("acceptance_length")) if engine.get("acceptance_length") else "",
        with_interval(rule, "tokens_per_second", 1),
        decimal(result.get("plain_tokens_per_second"), 1),
        with_interval(rule, "speedup"),
        percent(rule.get("identical_to_plain")),
    ]


def _letter(asked: list[str], sets: dict[str, str]) -> str:
    """The letter of a set of prompts, the same for the same set."""
    return sets.setdefault(str(asked), chr(ord("A") + len(sets) % 26))


def expected_grid(evals: Evals) -> Grid:
    """What search, cost model and training expected, beside what decoding measured."""
    return Grid(
        name="expected",
        title="Expected and measured",
        text="Of exact acceptance with a chain of fixed length. Expected of training: 1 + the "
        "held-out prefixes; of the model: a round's length if each token is accepted with chance "
        "a0 C, and its time from `vtrim flops --measure`.",
        columns=("run", "what", "expected", "measured", "measured / expected"),
        rows=[
            [name, what, *_pair(expected, measured, digits)]
            for name, result in evals.items()
            for what, expected, measured, digits in _expectations(result.get("expected") or {})
            if expected is not None and measured is not None
        ],
        names=2,
    )


def time_notes(evals: Evals) -> list[str]:
    """Why the cost model says nothing of a result's times."""
    notes = (
        (name, (result.get("expected") or {}).get("times_note")) for name, result in evals.items()
    )
    return [f"{name}: {note}." for name, note in notes if note]


def _expectations(found: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any, int]]:
    """(what, expected, measured, digits)."""
    coverage, length = found.get("coverage") or {}, found.get("acceptance_length") or {}
    speed = found.get("tokens_per_second") or {}
    yield "coverage of plain replies [%]", *_scaled(coverage, "heldout", "generated", 100), 1
    yield "tokens/round, of training", length.get("by_training"), length.get("measured"), 2
    yield "tokens/round, of the model", length.get("by_model"), length.get("measured"), 2
    yield "a0 of the model", length.get("a0"), length.get("a0_measured"), 3
    yield "tokens/s, of the model", speed.get("by_model"), speed.get("measured"), 1
    yield "tokens/s, of the measured length", speed.get("by_length"), speed.get("measured"), 1
    yield "tokens/s, plain", speed.get("plain_by_model"), speed.get("plain"), 1
    for name, key in (("draft step", "draft_seconds"), ("verification", "verify_seconds")):
        yield f"{name} [ms]", *_scaled(found.get(key) or {}, "expected", "measured", 1000), 2


def _scaled(found: Mapping[str, Any], first: str, second: str, factor: float) -> tuple[Any, Any]:
    values = (found.get(first), found.get(second))
    one, other = (None if value is None else factor * value for value in values)
    return one, other


def _pair(expected: float, measured: float, digits: int) -> list[str]:
    share = decimal(measured / expected) if expected else UNKNOWN
    return [decimal(expected, digits), decimal(measured, digits), share]
