"""Latency, throughput and accepted length of the recorded runs, and their paired comparisons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from vtrim.evaluation.bootstrap import interval_between, paired_interval, paired_p_value

Line = dict[str, Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """One draft on one domain. repeats: its processes, each with one value a prompt."""

    repeats: Sequence[Line]

    @cached_property
    def columns(self) -> dict[str, Floats]:
        """[N prompts] counts of the first repeat, and times as medians over the repeats [s]."""
        first = self.repeats[0]
        counts = {name: np.array(first[name], dtype=np.float64) for name in COUNTS}
        times = {name: np.median([one[name] for one in self.repeats], axis=0) for name in TIMES}
        return {**counts, **times}

    @property
    def num_prompts(self) -> int:
        """Prompts decoded."""
        return len(self.columns["emitted"])

    @property
    def changed_replies(self) -> int:
        """Prompts whose reply was another length or took other rounds in some repeat."""
        stacks = [np.array([one[name] for one in self.repeats]) for name in COUNTS]
        return int(np.any([np.ptp(stack, axis=0) > 0 for stack in stacks], axis=0).sum())

    def value(self, of: Quantity) -> float:
        """A quantity over all prompts."""
        return float(of.value(*(self.columns[name].sum() for name in of.columns)))

    def bounds(self, of: Quantity) -> tuple[float, float] | None:
        """Its 95 % interval over prompts."""
        return paired_interval(self.parts(of), of.value)

    def parts(self, of: Quantity) -> list[tuple[float, ...]]:
        """The summands of a quantity, a tuple a prompt."""
        columns = (self.columns[name].tolist() for name in of.columns)
        return list(zip(*columns, strict=True))

    def mean_share(self, phase: str) -> float:
        """Share of the rounds' time that a phase takes, mean of the repeats."""
        return float(np.mean([one["shares"][phase] for one in self.repeats]))


COUNTS = ("emitted", "rounds", "plain_emitted")
TIMES = ("seconds", "plain_seconds")


@dataclass(frozen=True)
class Quantity:
    """A number made of sums over prompts."""

    columns: tuple[str, ...]
    value: Callable[..., Any]


LENGTH = Quantity(("emitted", "rounds"), lambda emitted, rounds: emitted / rounds)
LATENCY = Quantity(("seconds", "emitted"), lambda seconds, emitted: 1000 * seconds / emitted)
THROUGHPUT = Quantity(("emitted", "seconds"), lambda emitted, seconds: emitted / seconds)
SPEEDUP = Quantity(
    ("emitted", "seconds", "plain_emitted", "plain_seconds"),
    lambda emitted, seconds, plain, plain_seconds: (emitted / seconds) / (plain / plain_seconds),
)


@dataclass(frozen=True)
class Comparison:
    """Two drafts on the same prompts: a quantity of one over that of the other, less 1."""

    one: Cell
    other: Cell

    def change(self, of: Quantity) -> float:
        """How much more the one has, as a share."""
        return self.one.value(of) / self.other.value(of) - 1

    def bounds(self, of: Quantity) -> tuple[float, float] | None:
        """Its 95 % interval: the same prompts are drawn for both."""
        sides = self.other.parts(of), self.one.parts(of)
        return interval_between(*sides, of.value, lambda one, other: one / other - 1)

    def p_value(self, of: Quantity) -> float | None:
        """How often chance alone gives a difference this large: paired permutation of prompts."""
        return paired_p_value(self.one.parts(of), self.other.parts(of), of.value)


@dataclass(frozen=True)
class Measured:
    """The record of all runs."""

    record: Line

    @property
    def facts(self) -> Line:
        """What all results have in common."""
        found: Line = self.record["facts"]
        return found

    @property
    def drafts(self) -> dict[str, Line]:
        """How each draft came to be, by its name."""
        found: dict[str, Line] = self.record["drafts"]
        return found

    @property
    def domains(self) -> list[str]:
        """The domains that were measured, in the page's order."""
        seen = {one["domain"] for one in self.record["results"]}
        return [name for name in TITLES if name in seen]

    def cell(self, domain: str, vocab: str) -> Cell:
        """The domain's draft with this vocabulary: full, own (its k*) or general."""
        return Cell(sorted(self._results(domain, vocab), key=lambda one: one["repeat"]))

    def vocabs(self, domain: str) -> list[str]:
        """The vocabularies that were measured in a domain; general chat's own is the general."""
        names = VOCABS[:2] if domain == "general" else VOCABS
        return [name for name in names if self._results(domain, name)]

    def compared(self, domain: str, vocab: str, other: str = "full") -> Comparison | None:
        """A vocabulary against another on the domain's own prompts; None: one was not measured."""
        if not {vocab, other} <= set(self.vocabs(domain)):
            return None
        return Comparison(self.cell(domain, vocab), self.cell(domain, other))

    def draft(self, domain: str, vocab: str) -> Line:
        """How a draft came to be."""
        return self.drafts[self.name(domain, vocab)]

    def size(self, domain: str, vocab: str) -> int:
        """Tokens in a draft's vocabulary, k."""
        return int(self.draft(domain, vocab)["k"])

    def total(self, domain: str) -> int:
        """Rows of the target's head."""
        return int(self.draft(domain, "own")["target_vocab_size"])

    def _results(self, domain: str, vocab: str) -> list[Line]:
        name = self.name(domain, vocab)
        results = self.record["results"]
        return [one for one in results if (one["draft"], one["domain"]) == (name, domain)]

    @staticmethod
    def name(domain: str, vocab: str) -> str:
        """A draft as run.py names it; ``own`` is the domain's k*."""
        return f"{domain}-{domain if vocab == 'own' else vocab}"


VOCABS = ("full", "own", "general")
TITLES = {"general": "general chat", "tools": "function calling", "ner": "NER"}
