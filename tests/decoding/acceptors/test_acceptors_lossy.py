"""Typical, relaxed, MARS, FSD-JS and Cactus: literal cases, a plain reference, temperature 0."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.acceptors.rule import Spot
from vtrim.decoding.protocol import Proposal, Verdict, Verification
from vtrim.decoding.sampling import target_token

PEAKED, FLAT = [0.7, 0.2, 0.06, 0.04], [0.3, 0.25, 0.25, 0.2]


def one_token(
    p: list[float], token: int, q: list[float] | None = None, temperature: float = 1.0, **more: Any
) -> tuple[Proposal, Verification]:
    """One drafted token; p and q are laws at temperature 1 over the same ids."""
    logits = more.pop("logits", None)
    rows = (torch.tensor(p).log() if logits is None else torch.tensor(logits)).repeat(2, 1)
    soft = torch.tensor(q or p).log()[None]
    proposal = Proposal(torch.tensor([token]), None, soft, torch.arange(len(p)))
    return proposal, Verification(rows, rows, lambda h: h, temperature, 5, 0, **more)


def kept(rule: Any, proposal: Proposal, view: Verification) -> tuple[float, str]:
    """The chance of the first token, and why."""
    spot = Spot(proposal, view, 0, [0], rule.seed)
    ((_, chance, reason),) = rule.chances(spot)
    return chance, reason


@pytest.mark.parametrize(("p", "token", "options", "right"), [
    (PEAKED, 0, {}, 1), (PEAKED, 1, {}, 1), (PEAKED, 2, {}, 0), (PEAKED, 3, {}, 0),
    (FLAT, 3, {}, 1),  # H = 1.376, 0.3 exp(-H) = 0.0757
    (PEAKED, 2, {"delta": 0.1}, 1),  # H = 0.869, 0.1 exp(-H) = 0.0419
    (PEAKED, 3, {"delta": 0.1}, 0),
    (PEAKED, 3, {"epsilon": 0.03}, 1),
])  # fmt: skip
def test_typical_keeps_what_exceeds_min_of_epsilon_and_delta_over_perplexity(
    p: list[float], token: int, options: dict[str, float], right: int
) -> None:
    rule = make_acceptor("typical", temperature=1.0, **options)
    assert kept(rule, *one_token(p, token)) == (right, "typical")


@pytest.mark.parametrize(("token", "options", "right"), [
    (0, {}, (1, "argmax")), (1, {}, (1, "relaxed")), (2, {}, (0, "relaxed")),
    (2, {"delta": 0.65}, (1, "relaxed")), (2, {"delta": 0.65, "top_n": 2}, (0, "relaxed")),
    (2, {"delta": 0.65, "top_n": 3}, (1, "relaxed")), (1, {"delta": 0.4}, (0, "relaxed")),
    (0, {"delta": 0.0, "top_n": 1}, (1, "argmax")),
])  # fmt: skip
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_relaxed_keeps_the_best_n_that_lie_within_delta_of_the_best(
    token: int, options: dict[str, float], right: tuple[int, str], temperature: float
) -> None:
    rule = make_acceptor("relaxed", temperature=temperature, **options)
    assert kept(rule, *one_token(PEAKED, token, temperature=temperature)) == right


@pytest.mark.parametrize(("logits", "token", "right"), [
    ([10.0, 9.1, 3.0, -1.0], 0, (1, "argmax")), ([10.0, 9.1, 3.0, -1.0], 1, (1, "second")),
    ([10.0, 8.9, 3.0, -1.0], 1, (0, "second")), ([10.0, 9.8, 9.7, -1.0], 2, (0, "second")),
    ([-1.0, -1.05, -3.0, -9.0], 1, (0, "second")),  # the ratio of negative logits says nothing
    ([0.0, -0.1, -3.0, -9.0], 1, (0, "second")), ([5.0, 5.0, 0.0, 0.0], 1, (1, "second")),
])  # fmt: skip
@pytest.mark.parametrize("temperature", [0.0, 0.5, 2.0])
def test_mars_keeps_the_runner_up_of_a_close_race_at_any_temperature(
    logits: list[float], token: int, right: tuple[int, str], temperature: float
) -> None:
    rule = make_acceptor("mars", temperature=temperature)
    assert kept(rule, *one_token(FLAT, token, logits=logits, temperature=temperature)) == right


@pytest.mark.parametrize(("q", "threshold", "right"), [
    (PEAKED, 1e-6, 1), (FLAT, 0.103, 1), (FLAT, 0.1028, 0), ([0.04, 0.06, 0.2, 0.7], 0.3, 0),
])  # fmt: skip
@pytest.mark.parametrize("token", [0, 3])
def test_fsd_js_keeps_any_token_of_a_near_law(
    q: list[float], threshold: float, right: int, token: int
) -> None:
    rule = make_acceptor("fsd-js", temperature=1.0, threshold=threshold)
    assert kept(rule, *one_token(PEAKED, token, q)) == (right, "js")  # JS(FLAT, PEAKED) = 0.102926


def test_fsd_js_counts_the_mass_outside_a_trimmed_vocabulary() -> None:
    """p(3) = 0.2 outside: JS = (0.8 ln(.8/.9) + ln(1/.9)) / 2 + 0.1 ln 2 = 0.0749."""
    p = torch.tensor([0.3, 0.25, 0.25, 0.2])
    kept_ids = torch.arange(3)
    soft = (p[:3] / 0.8).log()[None]
    rows = p.log().repeat(2, 1)
    proposal = Proposal(torch.tensor([0]), None, soft, kept_ids)
    view = Verification(rows, rows, lambda h: h, 1.0, 0, 0)
    for threshold, right in ((0.0748, 0), (0.0750, 1)):
        rule = make_acceptor("fsd-js", temperature=1.0, threshold=threshold)
        assert kept(rule, proposal, view)[0] == right


@pytest.mark.parametrize(("token", "delta", "h"), [
    (1, 0.0, 0.2), (1, 0.02, 0.28), (1, 0.5, 0.6), (1, 2.0, 1.0), (0, 0.05, 0.844914),
    (3, 0.1, 0.127636),
])  # fmt: skip
def test_cactus_raises_the_chance_of_a_greedy_token_to_h(
    token: int, delta: float, h: float
) -> None:
    rule = make_acceptor("cactus", temperature=1.0, delta=delta)
    chance, reason = kept(rule, *one_token(PEAKED, token))
    assert (chance, reason) == (pytest.approx(h, abs=1e-6), "ratio")


def test_cactus_gives_the_residual_of_the_raised_law_after_a_rejection() -> None:
    """p = (.5 .3 .2), q = (.2 .7 .1), x = 1, delta .05: h = .444914, the rest times .792981."""
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.7, 0.1]).log()[None]
    rows = p.log().repeat(2, 1)
    proposal = Proposal(torch.tensor([1]), q, q, torch.arange(3))
    spot = Spot(proposal, Verification(rows, rows, lambda h: h, 1.0, 0, 0), 0, [0], 0)
    rule: Any = make_acceptor("cactus", temperature=1.0, delta=0.05)
    ((_, chance, _),) = rule.chances(spot)
    assert chance == pytest.approx(0.444914 / 0.7, abs=1e-5)
    expected = torch.tensor([0.5 * 0.792981 - 0.2, 0, 0.2 * 0.792981 - 0.1])
    torch.testing.assert_close(spot.p, expected, atol=1e-5, rtol=0)


def reference(name: str, z: np.ndarray, q: np.ndarray, token: int, temperature: float) -> bool:
    """The rules of MATH.md 6 in float64, term by term, on raw logits z and a full draft law q."""
    p = np.exp((z - z.max()) / (temperature or 1.0))
    p /= p.sum()
    order = sorted(range(len(z)), key=lambda v: -z[v])
    if name == "typical":
        entropy = -sum(v * math.log(v) for v in p.tolist())
        return bool(p[token] > min(0.09, 0.3 * math.exp(-entropy)))
    if name == "relaxed":
        return token in order[:10] and bool(p[token] >= p.max() - 0.6)
    if name == "mars":
        first, second = order[:2]
        close = bool(z[first] > 0 and z[second] / z[first] > 0.9)
        return token == first or (token == second and close)
    total = 0.0
    for a, b in zip(p.tolist(), q.tolist(), strict=True):
        total += a * math.log(2 * a / (a + b)) + b * math.log(2 * b / (a + b))
    return total / 2 <= 0.1


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0, 1.5])
@pytest.mark.parametrize(
    ("name", "options"),
    [("typical", {}), ("relaxed", {}), ("mars", {}), ("fsd-js", {"threshold": 0.1})],
)
def test_chains_are_judged_as_by_the_plain_reference(
    name: str, options: dict[str, float], temperature: float, make_scene: Any
) -> None:
    rule: Any = make_acceptor(name, temperature=temperature, **options)
    rejected = lengthened = 0
    for seed in range(60):
        scene = make_scene(seed, step=1, scale=0.8, noise=0.3 + 0.03 * seed)
        tokens = scene.draft_logits.topk(3).indices[:, seed % 3].tolist()
        proposal, view = scene.proposal(tokens, temperature), scene.view(temperature)
        z, q = view.logits.double().numpy(), proposal.log_q_soft.double().exp().numpy()
        length, best = 0, scene.best()
        while length < 4:
            same = tokens[length] == best[length]
            passes = reference(name, z[length], q[length], tokens[length], temperature)
            if temperature == 0:  # typical is exact matching there; the arg-max always passes
                passes = same if name == "typical" else same or passes
            if not passes:
                break
            lengthened += not same
            length += 1
        rejected += length < 4
        verdict = rule.accept(proposal, view)
        assert verdict.path == tuple(range(length))
        assert verdict.next_token == target_token(view, length, 0)
    assert rejected > 5
    assert (lengthened > 0) == ((name, temperature) != ("typical", 0.0))


@pytest.mark.parametrize("name", ["relaxed", "mars", "fsd-js", "typical", "cactus"])
def test_at_temperature_0_the_arg_max_goes_before_an_elder_sibling(name: str) -> None:
    needed = {"cactus": {"delta": 1.0}, "fsd-js": {"threshold": 0.69}}.get(name, {})
    rows = torch.tensor([9.9, 10.0, 1.0]).repeat(3, 1)
    soft = torch.tensor([0.5, 0.4, 0.1]).log().repeat(2, 1)
    proposal = Proposal(torch.tensor([0, 1]), None, soft, torch.arange(3), parents=(-1, -1))
    view = Verification(rows, rows, lambda h: h, 0.0, 5, 0)
    verdict = make_acceptor(name, **needed).accept(proposal, view)
    assert verdict == Verdict((1,), 1, ("argmax",))
