"""The rows of docs/results/dropmatch.md: what a rule did on a set, from its generations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dropmatch_sets import rules_of

Line = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """The generations of one rule, and plain decoding's of the same prompts."""

    lines: Sequence[Line]
    plain: Sequence[Line]

    @property
    def prompts(self) -> int:
        """Number of generations."""
        return len(self.lines)

    @property
    def length(self) -> float | None:
        """Tokens emitted per target forward [tokens/round]."""
        return ratio(total(self.lines, "emitted"), total(self.lines, "rounds"))

    @property
    def speed(self) -> float | None:
        """Tokens per second of the rounds, prefill left out."""
        return ratio(total(self.lines, "emitted"), seconds(self.lines))

    @property
    def speedup(self) -> float | None:
        """Over plain decoding of the same prompts."""
        return ratio(self.speed, ratio(total(self.plain, "emitted"), seconds(self.plain)))

    @property
    def off_argmax(self) -> float | None:
        """Share of the emitted tokens that are not the target's own arg-max."""
        return ratio(total(self.lines, "off_argmax"), total(self.lines, "emitted"))

    @property
    def log_prob(self) -> float | None:
        """Mean log p of the emitted tokens under the target [nats/token]."""
        return ratio(total(self.lines, "log_prob"), total(self.lines, "emitted"))

    @property
    def log_prob_change(self) -> float | None:
        """``log_prob`` less that of plain decoding."""
        own = ratio(total(self.plain, "log_prob"), total(self.plain, "emitted"))
        return None if self.log_prob is None or own is None else self.log_prob - own

    @property
    def prefix(self) -> float | None:
        """Mean share of a reply before it leaves plain decoding's."""
        return mean(line["prefix"] for line in self.lines if "prefix" in line)

    def share(self, name: str) -> float | None:
        """Share of the rounds' time that a phase takes."""
        return ratio(phase(self.lines, name), seconds(self.lines))

    def over(self, other: Row | None) -> float | None:
        """Speed over that of another rule on the same prompts."""
        return None if other is None else ratio(self.speed, other.speed)

    @property
    def p_drop(self) -> float | None:
        """Mean p of the prompts that had a position to judge."""
        chosen = [self._heads(line).get("p_drop") for line in self.lines]
        return mean(p for p in chosen if p is not None)

    @property
    def positions(self) -> int:
        """Number of judged positions."""
        return sum(self._heads(line).get("positions", 0) for line in self.lines)

    @property
    def agreement(self) -> float | None:
        """Share of the heads whose arg-max is the clean one."""
        parts = [(h.get("positions", 0), h.get("agreement")) for h in map(self._heads, self.lines)]
        return weighted(parts)

    def vote_probability(self, votes: int) -> float | None:
        """The centroid's mean probability of the token that so many heads choose."""
        parts = []
        for heads in map(self._heads, self.lines):
            count = heads.get("head_histogram", {}).get(str(votes), 0)
            parts.append((count, heads.get("head_probability", {}).get(str(votes))))
        return weighted(parts)

    def divergence(self, verdict: str) -> tuple[float, ...] | None:
        """Positions of a verdict, and mean JS [nats] of draft, heads and farthest head there."""
        found = [h.get("js_by_verdict", {}).get(verdict) for h in map(self._heads, self.lines)]
        known = [one for one in found if one]
        if not known:
            return None
        names = ("draft", "heads", "farthest_head")
        means = [weighted([(one["positions"], one[name]) for one in known]) for name in names]
        return (sum(one["positions"] for one in known), *(m for m in means if m is not None))

    @property
    def votes(self) -> dict[int, float]:
        """Share of the judged positions by heads that share the most frequent arg-max."""
        counts: Counter[int] = Counter()
        for line in self.lines:
            histogram = self._heads(line).get("head_histogram", {})
            counts.update({int(votes): count for votes, count in histogram.items()})
        return {votes: count / counts.total() for votes, count in sorted(counts.items())}

    @staticmethod
    def _heads(line: Line) -> Line:
        found: Line = line.get("heads", {})
        return found


@dataclass(frozen=True)
class Measured:
    """One drafter's file. facts: what all its rows were made with."""

    facts: Line
    lines: Sequence[Line]

    def row(self, rule: str, *sets: str) -> Row | None:
        """A rule on these sets together; None where a set has none of it."""
        found = [line for line in self.lines if line["rule"] == rule and line["set"] in sets]
        if {line["set"] for line in found} != set(sets):
            return None
        places = {(line["set"], line["prompt"]) for line in found}
        plain = [
            line
            for line in self.lines
            if line["rule"] == "plain" and (line["set"], line["prompt"]) in places
        ]
        return Row(found, plain)

    @property
    def sets(self) -> list[str]:
        """The sets that were decoded, in order."""
        return list(dict.fromkeys(line["set"] for line in self.lines))

    @property
    def title(self) -> str:
        """What drafted, for a heading."""
        return str(self.facts["drafter"]["title"])


def read(path: Path) -> Measured:
    """The rows of dropmatch_run.py, of the prompts that all rules of their set have decoded.

    The process stops where there are none.
    """
    whole = path.read_text(encoding="utf-8").rpartition("\n")[0] if path.exists() else ""
    facts, *lines = [json.loads(line) for line in whole.splitlines()] or [None]
    rules: dict[tuple[str, int], set[str]] = {}
    for line in lines:
        rules.setdefault((line["set"], line["prompt"]), set()).add(line["rule"])
    whole_sets = {
        place for place, done in rules.items() if {r.key for r in rules_of(place[0])} <= done
    }
    kept = [line for line in lines if (line["set"], line["prompt"]) in whole_sets]
    if not kept:
        raise SystemExit(f"{path}: no prompt that all rules have decoded. Run dropmatch_run.py.")
    return Measured(facts, kept)


def total(lines: Iterable[Line], name: str) -> float | None:
    """Sum of a field; None where a line lacks it."""
    values = [line.get(name) for line in lines]
    return None if None in values else float(sum(v for v in values if v is not None))


def seconds(lines: Iterable[Line]) -> float:
    """Time of the rounds [s], prefill left out."""
    return sum(sum(line["seconds"].values()) - line["seconds"]["prefill"] for line in lines)


def phase(lines: Iterable[Line], name: str) -> float:
    """Time of a phase [s]."""
    return float(sum(line["seconds"].get(name, 0.0) for line in lines))


def ratio(a: float | None, b: float | None) -> float | None:
    """The quotient; None where one is unknown or b is 0."""
    return a / b if a is not None and b else None


def weighted(parts: Iterable[tuple[float, float | None]]) -> float | None:
    """The mean of values by their counts; None of nothing."""
    known = [(count, value) for count, value in parts if count and value is not None]
    return ratio(sum(count * value for count, value in known), sum(count for count, _ in known))


def mean(values: Iterable[float]) -> float | None:
    """The mean; None of nothing."""
    found = list(values)
    return sum(found) / len(found) if found else None
