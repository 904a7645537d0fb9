"""Two files of ``vtrim eval`` against each other: refused where they do not measure the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtrim.artifacts import read_object
from vtrim.errors import InputError, MismatchError
from vtrim.evaluation.bootstrap import MIN_PROMPTS
from vtrim.evaluation.compare import PLAIN_SPEED, Comparison, Row, compare_by, compare_rows
from vtrim.evaluation.compare_expected import expected_change

_ALIKE = ("temperature", "max_new_tokens", "top_k", "top_p", "stop_strings")
"""Settings that decide what is measured, and so must be the same."""
_NOTED = ("dtype", "device", "batch_size", "num_draft_tokens", "drafter", "acceptor")
_NOTED_FACTS = ("forward", "torch", "vtrim", "machine", "draft_vocab_size")


@dataclass(frozen=True)
class Result:
    """One result. name: what sentences call it; path: where it lies."""

    name: str
    path: Path
    numbers: Mapping[str, Any]

    @property
    def rows(self) -> list[Row]:
        """Its prompts, ordered by what they are, with their scores where tasks gave some."""
        scores = {
            row["prompt"]: row.get("chosen")
            for task in (self.numbers.get("tasks") or {}).values()
            for row in task.get("scored", ())
        }
        rows = [{"score": scores.get(row["prompt"]), **row} for row in self.numbers["per_prompt"]]
        return sorted(rows, key=lambda row: str(row["prompt"]))

    @property
    def facts(self) -> Mapping[str, Any]:
        """What was measured, on what."""
        found: Mapping[str, Any] = self.numbers.get("provenance") or {}
        return found

    @property
    def settings(self) -> Mapping[str, Any]:
        """How was measured."""
        found: Mapping[str, Any] = self.numbers.get("settings") or {}
        return found


def read_result(path: Path, name: str) -> Result:
    """The result in a file.

    Raises:
        InputError: it cannot be read, or is no result whose prompts can be told apart.
    """
    numbers = read_object(path)
    rows = numbers.get("per_prompt")
    if "acceptor" not in numbers or not isinstance(rows, list) or not rows:
        raise InputError(f"{path}: not a result of `vtrim eval`.")
    if not all(isinstance(row, Mapping) and row.get("prompt") for row in rows):
        raise InputError(
            f"{path}: its rows do not say which prompt they are of (an older vtrim wrote it). "
            "Measure again with `vtrim eval`."
        )
    return Result(name, path, numbers)


def compare_results(a: Result, b: Result) -> dict[str, Any]:
    """Result b against a: every metric, what else differs, and the cost model's word on it.

    Raises:
        MismatchError: they are of other targets, prompts or settings.
    """
    _check(a, b)
    first, second = a.rows, b.rows
    names = a.name, b.name
    found = compare_rows(first, second, names)
    plain = compare_by(PLAIN_SPEED, first, second, names)
    prompts = len({str(row.get("origin")) for row in first})
    return {
        "a": _who(a),
        "b": _who(b),
        "prompts": prompts,
        "differs": _differs(a, b),
        "comparisons": [one.to_dict() for one in found],
        "plain": None if plain is None else plain.to_dict(),
        "notes": list(_notes(plain, prompts, names)),
        "expected": expected_change(a.numbers, b.numbers, names),
    }


def _check(a: Result, b: Result) -> None:
    for what, key in (("target", "target_config_fingerprint"), ("weights", "target_weights")):
        its, other = a.facts.get(key), b.facts.get(key)
        if None not in (its, other) and its != other:
            raise MismatchError(
                f"{b.path}: measured on another target ({what}): {b.facts.get('target')}, and "
                f"{a.path} on {a.facts.get('target')}. Compare results of one target."
            )
    for key in _ALIKE:
        its, other = a.settings.get(key), b.settings.get(key)
        if its != other:
            option = key.replace("_", "-").replace("stop-strings", "stop")
            raise MismatchError(
                f"{b.path}: measured with --{option} {other}, {a.path} with {its}. "
                "Measure both alike."
            )
    mine, yours = ([str(row["prompt"]) for row in one.rows] for one in (a, b))
    if mine != yours:
        common = len(set(mine) & set(yours))
        raise MismatchError(
            f"{b.path}: other prompts than in {a.path}: {common} of its {len(yours)} are among "
            f"the {len(mine)} there. Measure both on the same --prompts or --task, with one "
            "--num-prompts."
        )


def _who(result: Result) -> dict[str, Any]:
    keys = ("acceptor", "lossless", "drafter", "prompts", "repeats")
    return {
        "name": result.name,
        "path": str(result.path),
        **{key: result.numbers.get(key) for key in keys},
        "draft": result.facts.get("draft"),
        "draft_vocab_size": result.facts.get("draft_vocab_size"),
    }


def _differs(a: Result, b: Result) -> dict[str, list[Any]]:
    """What else is not the same: name to both values."""
    pairs = {key: [a.numbers.get(key), b.numbers.get(key)] for key in _NOTED}
    pairs |= {key: [a.facts.get(key), b.facts.get(key)] for key in _NOTED_FACTS}
    engines = [(one.numbers.get("engine") or {}).get("name", "local") for one in (a, b)]
    pairs |= {"engine": engines, "threads": [a.settings.get("threads"), b.settings.get("threads")]}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _notes(plain: Comparison | None, prompts: int, names: Sequence[str]) -> list[str]:
    """What a reader must know before believing a difference."""
    notes = []
    if plain is not None and plain.p_value is not None and plain.p_value < 0.05 and plain.ratio:
        notes.append(
            f"Plain decoding itself ran {100 * (plain.ratio - 1):+.1f} % in {names[1]}: the "
            "machine was not the same, so believe the speed-up, not tokens/s."
        )
    if prompts < MIN_PROMPTS:
        notes.append(f"Only {prompts} prompts: no intervals, and no difference can be told.")
    return notes
