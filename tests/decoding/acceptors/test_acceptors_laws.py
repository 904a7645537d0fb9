"""The law of what is emitted, by enumeration of every draft and every verdict of a tiny world."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.acceptors.rejection import Rejection, accept_probability
from vtrim.decoding.acceptors.rule import Chances, Rule, Spot
from vtrim.decoding.protocol import ROOT, Proposal, Verification
from vtrim.decoding.sampling import law

Law = dict[tuple[int, ...], float]
V = 4
SAMPLING = [{}, {"temperature": 0.6}, {"top_k": 3}, {"top_p": 0.8, "temperature": 1.3}]
KINDS = ("sampled chain", "trimmed chain", "greedy chain", "tree")


@dataclass
class World:
    """A target and a draft whose next token depends on the last one only, so that all can be told.

    target: [V, V] logits behind each token; draft: [V, k] over ``kept``.
    """

    kind: str
    sampling: dict[str, Any]
    kept: Tensor = field(init=False)
    target: Tensor = field(init=False)
    draft: Tensor = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        self.kept = torch.tensor([0, 2, 3]) if self.kind == "trimmed chain" else torch.arange(V)
        self.target = 1.5 * torch.randn(V, V, generator=generator)
        noise = torch.randn(V, V, generator=generator)
        self.draft = (self.target + noise)[:, self.kept]

    def law(self, last: int) -> Tensor:
        """[V] what the target emits behind a token."""
        s = {"temperature": 1.0, **self.sampling}
        return law(self.target[last], **s).exp().double()

    def draft_law(self, last: int) -> Tensor:
        return law(self.draft[last], self.sampling.get("temperature", 1.0))

    def view(self, last: int, proposal: Proposal) -> Verification:
        rows = self.target[[last, *proposal.ids]]
        s = {"temperature": 1.0, **self.sampling}
        return Verification(rows, rows, lambda h: h, position=9, prompt=0, **s)

    def drafts(self, last: int) -> Iterator[tuple[float, Proposal]]:
        """Every proposal behind a token, and its probability."""
        if self.kind == "tree":
            first = self._best(last, 3)
            second = [self._best(token, 2) for token in first[:2]]
            tokens = [*first, *second[0], *second[1]]
            yield 1.0, self._proposal(last, tokens, (-1, -1, -1, 0, 0, 1, 1), sampled=False)
        elif self.kind == "greedy chain":
            first = self._best(last, 1)
            tokens = [*first, *self._best(first[0], 1)]
            yield 1.0, self._proposal(last, tokens, (-1, 0), sampled=False)
        else:
            for pair in itertools.product(range(len(self.kept)), repeat=2):
                a, b = self.kept[list(pair)].tolist()
                q = self.draft_law(last)[pair[0]] + self.draft_law(a)[pair[1]]
                yield float(q.exp()), self._proposal(last, [a, b], (-1, 0), sampled=True)

    def _best(self, last: int, count: int) -> list[int]:
        best: list[int] = self.kept[self.draft[last].topk(count).indices].tolist()
        return best

    def _proposal(
        self, last: int, tokens: list[int], parents: tuple[int, ...], *, sampled: bool
    ) -> Proposal:
        above = [last if parent == ROOT else tokens[parent] for parent in parents]
        laws = torch.stack([self.draft_law(token) for token in above])
        return Proposal(torch.tensor(tokens), laws if sampled else None, laws, self.kept, parents)


def verdict_law(rule: Rule, proposal: Proposal, view: Verification, node: int = ROOT) -> Law:
    """Probability of each run of tokens that one verdict can emit, from the rule's own chances."""
    found: Law = defaultdict(float)
    spot = Spot(proposal, view, node + 1, proposal.children.get(node, []), seed=0)
    left = 1.0
    for child, chance, _ in rule.chances(spot):
        for tail, mass in verdict_law(rule, proposal, view, child).items():
            found[proposal.ids[child], *tail] += left * chance * mass
        left *= 1 - chance
    for token, mass in enumerate((spot.p.double() / spot.p.double().sum()).tolist()):
        found[(token,)] += left * mass
    return found


def emitted_law(rule: Rule, world: World, last: int, length: int) -> Law:
    """Law of the next ``length`` tokens, over as many rounds as they need."""
    found: Law = defaultdict(float)
    for q, proposal in world.drafts(last):
        for run, mass in verdict_law(rule, proposal, world.view(last, proposal)).items():
            if q * mass == 0:
                continue
            if len(run) >= length:
                found[run[:length]] += q * mass
                continue
            for tail, rest in emitted_law(rule, world, run[-1], length - len(run)).items():
                found[(*run, *tail)] += q * mass * rest
    return found


def target_law(world: World, last: int, length: int) -> Law:
    found: Law = {}
    for run in itertools.product(range(V), repeat=length):
        steps = zip((last, *run), run, strict=False)
        found[run] = math.prod(float(world.law(a)[b]) for a, b in steps)
    return found


def distance(a: Law, b: Law) -> float:
    """Total variation."""
    return sum(abs(a.get(run, 0.0) - b.get(run, 0.0)) for run in {*a, *b}) / 2


def drift(rule: Rule, world: World, length: int = 1) -> float:
    """Largest total variation of the emitted law from the target's, over the last token."""
    laws = [(emitted_law(rule, world, n, length), target_law(world, n, length)) for n in range(V)]
    assert all(sum(ours.values()) == pytest.approx(1, abs=1e-5) for ours, _ in laws)
    return max(distance(ours, theirs) for ours, theirs in laws)


@pytest.mark.parametrize("sampling", SAMPLING, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["rejection", "cactus"])
def test_lossless_rules_emit_exactly_the_targets_law_over_two_tokens(
    name: str, kind: str, sampling: dict[str, Any]
) -> None:
    rule: Any = make_acceptor(name, temperature=1.0, **({"delta": 0} if name == "cactus" else {}))
    assert rule.lossless
    assert drift(rule, World(kind, sampling), length=2) < 1e-6


class Unnormalised(Rejection):
    """Forgets to renormalise what a rejected sibling leaves."""

    name: ClassVar[str] = "planted"

    def chances(self, spot: Spot) -> Chances:
        for node, token in spot.drafted:
            yield node, float(spot.p[token]), "ratio"
            spot.p = spot.p.clone()
            spot.p[token] = 0


class WholeLaw(Rejection):
    """Draws from p, not from the residual, after a rejection."""

    def chances(self, spot: Spot) -> Chances:
        for node, _ in spot.drafted:
            yield node, accept_probability(spot.p, spot.proposal, node), "ratio"


class UnfilteredTarget(Rejection):
    """Judges by the target's law without its filters."""

    def chances(self, spot: Spot) -> Chances:
        spot.p = law(spot.logits, spot.view.temperature).exp()
        yield from Rejection.chances(self, spot)


@pytest.mark.parametrize(
    ("rule", "kind", "sampling"),
    [
        (Unnormalised(), "tree", {}),
        (WholeLaw(), "sampled chain", {}),
        (WholeLaw(), "greedy chain", {}),
        (UnfilteredTarget(), "sampled chain", {"top_p": 0.8}),
    ],
)
def test_the_enumeration_finds_planted_mistakes(
    rule: Rule, kind: str, sampling: dict[str, Any]
) -> None:
    assert drift(rule, World(kind, sampling)) > 0.01


def test_the_enumeration_finds_a_draft_that_states_another_law_than_it_drew_from() -> None:
    class Tempered(World):
        def drafts(self, last: int) -> Iterator[tuple[float, Proposal]]:
            for q, proposal in World.drafts(self, last):
                claimed = (0.5 * proposal.log_q_soft).log_softmax(-1)
                yield q, Proposal(proposal.tokens, claimed, claimed, self.kept, proposal.parents)

    assert drift(Rejection(), Tempered("sampled chain", {})) > 0.01


LOSSY: list[tuple[str, dict[str, Any]]] = [
    ("typical", {}),
    ("relaxed", {}),
    ("mars", {"theta": 0.2}),
    ("fsd-js", {"threshold": 0.3}),
    ("cactus", {"delta": 0.05}),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "options"), LOSSY)
def test_rules_that_call_themselves_lossy_are(
    name: str, options: dict[str, Any], kind: str
) -> None:
    rule: Any = make_acceptor(name, temperature=1.0, **options)
    assert not rule.lossless
    assert drift(rule, World(kind, {})) > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_cactus_drifts_further_with_a_greater_budget(kind: str) -> None:
    drifts = [drift(make(delta), World(kind, {})) for delta in (0.0, 0.001, 0.01, 0.1, 1.0)]
    assert drifts == sorted(drifts)
    assert drifts[0] < 1e-6 < 0.005 < drifts[1]


@pytest.mark.parametrize("delta", [0.001, 0.01, 0.1, 0.5])
def test_cactus_keeps_its_budget_for_a_greedy_chain(delta: float) -> None:
    """KL(emitted, p) is at most ln(1 + 2 delta), total variation at most sqrt(delta / 2)."""
    world = World("greedy chain", {})
    for last in range(V):
        ours, theirs = emitted_law(make(delta), world, last, 1), target_law(world, last, 1)
        kl = sum(mass * math.log(mass / theirs[run]) for run, mass in ours.items() if mass > 0)
        assert 0 < kl <= math.log(1 + 2 * delta) + 1e-6
        assert distance(ours, theirs) <= math.sqrt(delta / 2) + 1e-6


def make(delta: float) -> Any:
    return make_acceptor("cactus", temperature=1.0, delta=delta)


def test_the_raised_law_stays_within_its_budget() -> None:
    for delta, p in itertools.product((1e-3, 0.02, 0.2, 1.0), (1e-4, 0.01, 0.1, 0.3, 0.5, 0.8)):
        start = torch.tensor([p, (1 - p) / 4, (1 - p) / 4, (1 - p) / 2], dtype=torch.float64)
        raised = make(delta).raised(start, 0)
        assert float(raised.sum()) == pytest.approx(1)
        assert float(raised[0]) == pytest.approx(min(1, p + math.sqrt(2 * delta * p * (1 - p))))
        kl = float((raised * (raised / start).log().nan_to_num(neginf=0.0)).sum())
        assert kl <= math.log(1 + 2 * delta) + 1e-9
        if float(raised[0]) <= 1 - p:
            assert kl <= delta + 1e-9


@pytest.mark.parametrize(("option", "name", "values"), [
    ("epsilon", "typical", (1.0, 0.3, 0.09, 0.0)),
    ("delta", "relaxed", (0.0, 0.3, 0.6, 1.0)),
    ("top_n", "relaxed", (1, 2, 3, 4)),
    ("theta", "mars", (1.0, 0.6, 0.3, 0.0)),
    ("threshold", "fsd-js", (0.0, 0.1, 0.3, 0.69)),
])  # fmt: skip
def test_a_looser_option_keeps_more(option: str, name: str, values: tuple[float, ...]) -> None:
    worlds = [World(kind, {}) for kind in KINDS]

    def kept(value: float) -> float:
        rule: Any = make_acceptor(name, temperature=1.0, **{option: value})
        return sum(
            q * mass * (len(run) - 1)
            for world, last in itertools.product(worlds, range(V))
            for q, proposal in world.drafts(last)
            for run, mass in verdict_law(rule, proposal, world.view(last, proposal)).items()
        )

    shares = [kept(value) for value in values]
    assert shares == sorted(shares)
    assert shares[-1] > shares[0]
