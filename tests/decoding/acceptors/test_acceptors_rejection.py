"""Speculative sampling keeps the target's law: literal cases and chi-square tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from vtrim.decoding.acceptors.rejection import Rejection, accept_probability, residual
from vtrim.decoding.acceptors.rule import Chances, Rule, Spot
from vtrim.decoding.protocol import Proposal, Verification
from vtrim.decoding.sampling import Purpose, draw, law, uniform
from vtrim.models.target import load_target

DRAWS = 20_000
TARGET = torch.tensor([0.30, 0.05, 0.25, 0.05, 0.20, 0.15])
DRAFT = torch.tensor([0.10, 0.30, 0.25, 0.05, 0.05, 0.25])
ALL = torch.arange(6)
KEPT = torch.tensor([0, 2, 3])
QUANTILE = 25.7  # 99.99 % of chi-square with 5 degrees of freedom
SEED = 11
RULE = Rejection(seed=SEED)
FILTERS: dict[str, float] = {"temperature": 0.6, "top_k": 4, "top_p": 0.8}


def view(logits: Tensor, position: int, temperature: float = 1.0, **filters: float) -> Verification:
    """A view with these clean logits [L+1, V]; rejection reads no states."""
    return Verification(
        torch.zeros(len(logits), 1), logits, lambda h: h, temperature, position, 0, **filters
    )  # type: ignore[arg-type]


def sampled(q: Tensor, vocab_ids: Tensor, position: int) -> Proposal:
    """One token drawn from q [k]."""
    index = draw(q, (SEED, 0, position), Purpose.DRAFT)
    return Proposal(vocab_ids[index][None], q.log()[None], q.log()[None], vocab_ids)


def full_law(position: int) -> Proposal:
    return sampled(DRAFT, ALL, position)


def one_hot(_: int) -> Proposal:
    return Proposal(torch.tensor([1]), None, DRAFT.log()[None], ALL)


def trimmed(position: int) -> Proposal:
    return sampled(DRAFT[KEPT] / DRAFT[KEPT].sum(), KEPT, position)


def tree(_: int) -> Proposal:
    """Three siblings in the order of the draft's law."""
    tokens, soft = torch.tensor([0, 4, 2]), DRAFT.log().repeat(3, 1)
    return Proposal(tokens, None, soft, ALL, parents=(-1, -1, -1))


def sampled_tree(position: int) -> Proposal:
    """Two siblings drawn independently from one law, equal ones included."""
    pair = [draw(DRAFT, (SEED, sibling, position), Purpose.DRAFT) for sibling in range(2)]
    log_q = DRAFT.log().repeat(2, 1)
    return Proposal(torch.stack(pair), log_q, log_q, ALL, parents=(-1, -1))


def one_hot_with_a_soft_law(_: int) -> Proposal:
    """A greedy draft that claims to have been drawn from its softmax."""
    return Proposal(torch.tensor([1]), DRAFT.log()[None], DRAFT.log()[None], ALL)


def chi_square(tokens: list[int], expected: Tensor) -> float:
    counts = torch.bincount(torch.tensor(tokens), minlength=expected.numel()).double()
    wanted = expected.double() * len(tokens)
    assert counts[wanted == 0].sum() == 0
    seen = wanted > 0
    return float(((counts - wanted)[seen] ** 2 / wanted[seen]).sum())


def first_tokens(
    draft: Callable[[int], Proposal],
    logits: Tensor,
    draws: int = DRAWS,
    rule: Rule = RULE,
    **filters: float,
) -> list[int]:
    """The first token emitted at each of many positions."""
    tokens = []
    for position in range(draws):
        proposal = draft(position)
        rows = logits if len(logits) > proposal.size else logits[:1].expand(proposal.size + 1, -1)
        verdict = rule.accept(proposal, view(rows, position, **filters))
        tokens.append([*(proposal.ids[node] for node in verdict.path), verdict.next_token][0])
    return tokens


@pytest.mark.parametrize(
    ("draft", "draws", "filters"),
    [
        (full_law, DRAWS, {}),
        (one_hot, DRAWS, {}),
        (trimmed, DRAWS, FILTERS),
        (tree, DRAWS, FILTERS),
        (sampled_tree, 5000, {}),
    ],
)
def test_emitted_tokens_follow_the_targets_law(
    draft: Callable[[int], Proposal], draws: int, filters: dict[str, float]
) -> None:
    logits = TARGET.log().repeat(2, 1)
    expected = law(logits[0], **{"temperature": 1.0, **filters}).exp()  # type: ignore[arg-type]
    assert chi_square(first_tokens(draft, logits, draws, **filters), expected) < QUANTILE


def test_the_same_test_finds_a_greedy_draft_judged_by_its_softmax() -> None:
    tokens = first_tokens(one_hot_with_a_soft_law, TARGET.log().repeat(2, 1), 4000)
    assert chi_square(tokens, TARGET) > 10 * QUANTILE


class WithoutRenormalising(Rejection):
    """Judges a sibling by what its rejected elders left of p, not brought back to a law."""

    def chances(self, spot: Spot) -> Chances:
        for node, token in spot.drafted:
            yield node, float(spot.p[token]), "ratio"
            spot.p = spot.p.index_fill(0, torch.tensor(token), 0)


class WithoutResidual(Rejection):
    """Draws from the whole law after a rejection."""

    def chances(self, spot: Spot) -> Chances:
        for node, _ in spot.drafted:
            yield node, accept_probability(spot.p, spot.proposal, node), "ratio"


@pytest.mark.parametrize(
    ("rule", "draft"),
    [(WithoutRenormalising(), tree), (WithoutResidual(), full_law), (WithoutResidual(), one_hot)],
)
def test_the_same_test_finds_a_planted_bias(rule: Rule, draft: Callable[[int], Proposal]) -> None:
    tokens = first_tokens(draft, TARGET.log().repeat(2, 1), 4000, rule)
    assert chi_square(tokens, TARGET) > 2 * QUANTILE


def test_each_sibling_has_a_random_number_of_its_own() -> None:
    """With one number for both, a second sibling would pass only where the first almost did."""
    p = torch.tensor([0.5, 0.5, 0.0])
    proposal = Proposal(torch.tensor([2, 0]), None, p.log().repeat(2, 1), torch.arange(3), (-1, -1))
    first, second = [], []
    for position in range(2000):
        place = (SEED, 0, position)
        first.append(uniform(place, Purpose.ACCEPT))
        second.append(uniform(place, Purpose.ACCEPT, 1))
        verdict = RULE.accept(proposal, view(p.log().repeat(3, 1), position))
        assert verdict.path == ((1,) if second[-1] < 0.5 else ())
    assert abs(float(torch.corrcoef(torch.tensor([first, second]))[0, 1])) < 5 / 2000**0.5


def test_two_tokens_in_a_row_follow_the_joint_law_across_rounds() -> None:
    """The second token comes from the same chain or from the next round, which drafts it anew."""
    laws = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.3, 0.1, 0.6], [0.6, 0.2, 0.2]])
    drafts = torch.tensor([[0.2, 0.2, 0.6], [0.5, 0.2, 0.3], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]])
    acceptor, after = Rejection(seed=SEED), 1  # row 1 + x is the law after token x, row 0 the first

    def chain(position: int, states: list[int]) -> Proposal:
        tokens: list[Tensor] = []
        for state in states:
            last = after + int(tokens[-1]) if tokens else state
            place = (SEED, 0, position + len(tokens))
            states[len(tokens)] = last
            tokens.append(draw(drafts[last], place, Purpose.DRAFT))
        log_q = drafts[states].log()
        return Proposal(torch.stack(tokens), log_q, log_q, torch.arange(3))

    pairs = []
    for start in range(0, DRAWS, 2):
        emitted: list[int] = []
        while len(emitted) < 2:
            states = [after + emitted[0]] if emitted else [0, 0]
            proposal = chain(start + len(emitted), states)
            drafted = proposal.tokens.tolist()
            rows = laws[[*states, after + drafted[-1]]].log()
            verdict = acceptor.accept(proposal, view(rows, start + len(emitted)))
            emitted += [*drafted[: verdict.num_accepted], verdict.next_token]
        pairs.append(3 * emitted[0] + emitted[1])
    joint = (laws[0][:, None] * laws[after:]).flatten()
    assert chi_square(pairs, joint) < 31.9  # 99.99 %, 8 degrees of freedom


def test_accept_probabilities_and_residuals_have_their_exact_values(inputs: Path) -> None:
    for case in json.loads((inputs / "g22_accept_cases.json").read_text()):
        p, q = torch.tensor(case["target_p"]), torch.tensor(case["draft_q"])
        token = torch.tensor([case["draft_token"]])
        kept = q.nonzero()[:, 0]
        proposals = [
            Proposal(token, q.log()[None], q.log()[None], torch.arange(3)),
            Proposal(token, q[kept].log()[None], q[kept].log()[None], kept),
        ]
        if q.max() == 1:
            proposals.append(Proposal(token, None, q.log()[None], torch.arange(3)))
        for proposal in proposals:
            chance = accept_probability(p, proposal, 0)
            assert chance == pytest.approx(case["accept_probability"], abs=1e-6), case["name"]
            if case["residual"] is not None:
                rest = residual(p, proposal, 0)
                torch.testing.assert_close(rest / rest.sum(), torch.tensor(case["residual"]))


def test_equal_laws_never_reject() -> None:
    q = TARGET.log()[None]
    for position in range(500):
        proposal = Proposal(torch.tensor([position % 6]), q, q, ALL)
        assert Rejection().accept(proposal, view(q.repeat(2, 1), position)).num_accepted == 1


def test_the_law_after_a_word_is_reproduced_on_a_real_model(inputs: Path) -> None:
    expect = json.loads((inputs / "g22_maybe.json").read_text())
    target = load_target(str(inputs / "target_chain"))
    words = json.loads((inputs / "tok_words" / "tokenizer.json").read_text())["model"]["vocab"]
    prompt = [words[word] for word in expect["prompt"].split()]
    with torch.no_grad():
        logits = target.logits(target.forward(torch.tensor([prompt])).hidden[0, -1])
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(30, generator=generator).softmax(-1)
    kept = torch.arange(0, 60, 2)
    counts = torch.zeros(target.vocab_size)
    for position in range(expect["draws"]):
        proposal = sampled(q, kept, position)
        verdict = Rejection(seed=SEED).accept(proposal, view(logits.repeat(2, 1), position))
        token = int(proposal.tokens[0]) if verdict.num_accepted else verdict.next_token
        counts[token] += 1
    shares = counts / expect["draws"]
    for word, p in expect["law"].items():
        assert float(shares[words[word]]) == pytest.approx(p, abs=expect["five_sigma"][word])
    assert counts.sum() == sum(counts[words[word]] for word in expect["law"])
