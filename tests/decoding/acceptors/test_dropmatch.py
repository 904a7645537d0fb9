"""DropMatch: literal cases, a slow plain reference, degenerate settings, corrections."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from vtrim.decoding.acceptors.dropmatch import CORRECTIONS, CRITERIA, DropMatch
from vtrim.decoding.acceptors.heads import Heads, majority
from vtrim.decoding.acceptors.judging import Judging
from vtrim.decoding.protocol import Proposal, Verification
from vtrim.decoding.sampling import Place, law, target_token
from vtrim.models.target import load_target


class FixedMasks(DropMatch):
    """DropMatch with the same given masks [K, d] at every position."""

    def with_masks(self, masks: Any) -> FixedMasks:
        object.__setattr__(self, "_given", torch.tensor(masks, dtype=torch.bool))
        return self

    def masks(self, place: Place, size: int, p_drop: float) -> Tensor:  # noqa: ARG002
        given: Tensor = self._given  # type: ignore[attr-defined]
        return given


def one_row(case: dict[str, Any]) -> tuple[Proposal, Verification]:
    """The proposal and view of one literal case: one drafted token, law over all ids."""
    weight, hidden = torch.tensor(case["head"]), torch.tensor(case["hidden"]).repeat(2, 1)
    log_q = torch.tensor(case["draft_law"]).log()[None]
    proposal = Proposal(
        torch.tensor([case["draft_token"]]), None, log_q, torch.arange(log_q.shape[1])
    )
    return proposal, Verification(
        hidden, hidden @ weight.T, lambda h: h @ weight.T, 0.0, position=0, prompt=0
    )


def plain_js(p: np.ndarray, q: np.ndarray) -> float:
    """JS in nats, term by term."""
    total = 0.0
    for a, b in zip(p.tolist(), q.tolist(), strict=True):
        m = (a + b) / 2
        total += (a * math.log(a / m) if a > 0 else 0) + (b * math.log(b / m) if b > 0 else 0)
    return total / 2


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def masks_at(rule: DropMatch, view: Verification, row: int) -> Tensor:
    """The masks [K, d] of a row of a chain."""
    place = (rule.seed, view.prompt, view.position + row)
    return rule.masks(place, view.hidden.shape[1], float(rule.p_drop))


def head_logits(rule: DropMatch, proposal: Proposal, view: Verification) -> Tensor:
    """[L, K, V] logits of all rows of a chain, from one product."""
    rows = list(range(proposal.size))
    return Judging(rule._rules(proposal, view.prompt), proposal, view)._head_logits(rows)


def plain_reasons(rule: DropMatch, proposal: Proposal, view: Verification) -> list[str]:
    """Algorithm 1 by loops: a pass of the head for each mask, laws over the full vocabulary."""
    reasons: list[str] = []
    temperature, keep = view.temperature or 1.0, 1 - float(rule.p_drop)
    for row, token in enumerate(proposal.tokens.tolist()):
        hidden, masks = view.hidden[row], masks_at(rule, view, row)
        logits = np.stack(
            [view.head((hidden * mask / keep)[None])[0].numpy() for mask in masks]
        ).astype(np.float64)
        best = [int(line.argmax()) for line in logits]
        centroid = softmax(logits.mean(0) / temperature)
        radius = max(plain_js(softmax(line / temperature), centroid) for line in logits)
        q = np.zeros(logits.shape[1])
        q[proposal.vocab_ids.numpy()] = np.exp(proposal.log_q_soft[row].double().numpy())
        votes = Counter(best)
        top = [vote for vote, count in votes.items() if count == max(votes.values())]
        found = [
            ("naive", rule.criterion == "naive" and token in best),
            ("majority", rule.criterion in ("full", "majority") and top == [token]),
            ("js", rule.criterion in ("full", "js") and plain_js(q, centroid) <= radius),
        ]
        kept = [
            name for name, holds in found if holds and centroid[token] >= rule.min_centroid_prob
        ]
        if not kept and rule.accept_clean_argmax and token == int(view.logits[row].argmax()):
            kept = ["clean"]
        if not kept:
            break
        reasons.append(kept[0])
    return reasons


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(
    "options", [{}, {"accept_clean_argmax": False}, {"min_centroid_prob": 0.15}]
)
def test_the_fast_rule_equals_the_plain_reference(
    criterion: str, temperature: float, options: dict[str, Any], make_scene: Any
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        scene = make_scene(seed, step=1 + seed % 3, noise=0.1 + 0.05 * (seed % 10))
        rule = DropMatch(criterion=criterion, seed=seed, p_drop=0.1 + 0.1 * (seed % 6), **options)
        tokens = scene.vocab_ids[scene.draft_logits.argmax(-1)].tolist()
        proposal, view = scene.proposal(tokens, temperature), scene.view(temperature)
        expected = plain_reasons(rule, proposal, view)
        verdict = rule.accept(proposal, view)
        assert list(verdict.reasons) == expected
        assert verdict.num_accepted == len(expected)
        seen.update(expected)
    wanted = {"js", "majority"} if criterion == "full" else {criterion}
    assert wanted <= set(seen)


def test_membership_radius_and_unique_majority_have_their_literal_values(inputs: Path) -> None:
    for case in json.loads((inputs / "g21_dropmatch_masks.json").read_text()):
        weight, hidden = torch.tensor(case["head"]), torch.tensor(case["hidden"])
        states = hidden * torch.tensor(case["masks"]) / (1 - case["p_drop"])
        q, token = torch.tensor(case["draft_law"]).log(), case["draft_token"]
        heads = Heads(states @ weight.T, 0.0, q, torch.arange(q.numel()))
        radius, distance = max(heads.radii), heads.distance
        assert heads.best == case["head_argmaxes"], case["name"]
        torch.testing.assert_close(heads.log_centroid.exp(), torch.tensor(case["centroid"]))
        assert radius == pytest.approx(case["largest_js_head_to_centroid_nats"], abs=1e-6)
        assert distance == pytest.approx(case["js_draft_to_centroid_nats"], abs=1e-6)
        assert (token in heads.best) == case["accept_by_membership"]
        assert (distance <= radius) == case["accept_by_js"]
        assert (majority(heads.best) == token) == case["accept_by_unique_majority"]
        assert (majority(heads.best) is None) == case["majority_tie"]


@pytest.mark.parametrize("criterion", CRITERIA)
def test_fixed_masks_give_the_literal_accept_flags(criterion: str, inputs: Path) -> None:
    flags = {
        "naive": "accept_by_membership",
        "js": "accept_by_js",
        "majority": "accept_by_unique_majority",
        "full": "accept_js_then_majority",
    }
    for case in json.loads((inputs / "g21_dropmatch_masks.json").read_text()):
        proposal, view = one_row(case)
        rule = FixedMasks(
            heads=len(case["masks"]),
            p_drop=case["p_drop"],
            criterion=criterion,
            accept_clean_argmax=False,
        ).with_masks(case["masks"])
        # Without dropout, or with one head, membership stands in for the JS rule.
        degenerate = case["p_drop"] == 0 or len(case["masks"]) == 1
        flag = flags["naive" if degenerate else criterion]
        assert rule.accept(proposal, view).num_accepted == case[flag], case["name"]


@pytest.mark.parametrize(
    ("best", "winner"),
    [([1, 1, 2], 1), ([2, 1, 1, 2, 3], None), ([4], 4), ([0, 1, 2], None), ([0, 0, 0], 0)],
)
def test_a_tie_has_no_majority(best: list[int], winner: int | None) -> None:
    assert majority(best) == winner


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("num_heads", [1, 2, 5])
def test_without_dropout_the_rule_is_exact_matching(
    num_heads: int, criterion: str, inputs: Path
) -> None:
    case = json.loads((inputs / "g21_dropmatch_p0.json").read_text())
    logits = torch.tensor([case["target_logits"]] * 2)
    for log_q in (torch.tensor(case["draft_law"]).log(), logits[0].log_softmax(-1)):
        for token, kept in zip(case["draft_tokens"], case["expect"]["accept"], strict=True):
            proposal = Proposal(torch.tensor([token]), None, log_q[None], torch.arange(4))
            view = Verification(torch.zeros(2, 3), logits, lambda h: h, 0.0, 0, 0)
            rule = DropMatch(
                heads=num_heads, p_drop=0.0, criterion=criterion, accept_clean_argmax=False
            )
            verdict = rule.accept(proposal, view)
            assert (verdict.num_accepted, verdict.next_token) == (int(kept), 0)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_one_head_is_judged_by_membership(criterion: str, make_scene: Any) -> None:
    for seed in range(40):
        scene = make_scene(seed, noise=0.3)
        tokens = scene.vocab_ids[scene.draft_logits.argmax(-1)].tolist()
        proposal, view = scene.proposal(tokens), scene.view()
        one = DropMatch(heads=1, criterion=criterion, seed=seed)
        naive = DropMatch(heads=1, criterion="naive", seed=seed)
        assert one.accept(proposal, view) == naive.accept(proposal, view)
        assert set(one.accept(proposal, view).reasons) <= {"naive", "clean"}


def test_the_heads_of_all_positions_go_through_one_product_as_through_one_each(
    make_scene: Any,
) -> None:
    scene = make_scene(3, length=4)
    rule, view = DropMatch(seed=3), scene.view()
    logits = head_logits(rule, scene.proposal([0, 2, 4, 6]), view)
    assert scene.head_calls == [(20, 32)]
    for row in range(4):
        for index, mask in enumerate(masks_at(rule, view, row)):
            alone = scene.head((view.hidden[row] * mask / 0.7)[None])[0]
            torch.testing.assert_close(logits[row, index], alone)


def test_a_chain_of_the_targets_own_tokens_costs_one_product(make_scene: Any) -> None:
    scene = make_scene(3, length=4, step=1)
    DropMatch(seed=3).accept(scene.proposal(scene.best()[:-1]), scene.view())
    assert scene.head_calls == [(20, 32)]


@pytest.mark.parametrize(("p_drop", "calls"), [(0.001, [(10, 32)]), (0.6, [(10, 32), (10, 32)])])
def test_rows_behind_the_first_foreign_token_are_computed_only_when_it_stays(
    p_drop: float, calls: list[tuple[int, ...]], make_scene: Any
) -> None:
    scene = make_scene(3, length=4, step=1)
    best = scene.best()[:-1]
    second = scene.view().logits[1].topk(2).indices[1]
    tokens = [best[0], int(second), *best[2:]]
    rule = DropMatch(seed=3, p_drop=p_drop, criterion="naive", heads=5)
    verdict = rule.accept(scene.proposal(tokens), scene.view())
    assert verdict.num_accepted == (1 if len(calls) == 1 else 4)
    assert scene.head_calls == calls


def test_without_dropout_the_head_is_not_run_again(make_scene: Any) -> None:
    scene = make_scene()
    DropMatch(p_drop=0.0).accept(scene.proposal([0, 2, 4, 6]), scene.view())
    assert scene.head_calls == []


def test_the_clean_guard_keeps_the_targets_own_arg_max_that_the_rule_rejects(
    make_scene: Any,
) -> None:
    guarded = 0
    for seed in range(40):
        scene = make_scene(seed, step=1)
        proposal, view = scene.proposal(scene.best()[:-1]), scene.view()
        options: dict[str, Any] = {"criterion": "naive", "p_drop": 0.9, "seed": seed}
        with_guard = DropMatch(**options).accept(proposal, view)
        without = DropMatch(accept_clean_argmax=False, **options).accept(proposal, view)
        assert with_guard.num_accepted == 4
        if without.num_accepted < 4:
            assert with_guard.reasons[without.num_accepted] == "clean"
            guarded += 1
    assert guarded > 10


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_token_less_likely_than_the_floor_is_kept_only_as_the_clean_arg_max(
    temperature: float, inputs: Path
) -> None:
    case = json.loads((inputs / "g21_dropmatch_masks.json").read_text())[3]
    proposal, view = one_row(case)  # the majority token 0 has centroid probability .447
    view = Verification(view.hidden, view.logits, view.head, temperature, 0, 0)
    for floor, guard, reasons in (
        (0.44, False, ("majority",)),
        (0.45, False, ()),
        (0.45, True, ("clean",)),
    ):
        rule = FixedMasks(
            heads=3, p_drop=0.5, min_centroid_prob=floor, accept_clean_argmax=guard
        ).with_masks(case["masks"])
        assert rule.accept(proposal, view).reasons == reasons


CLEAN = torch.tensor([2.0, 1.5, 0.5, -2.0])
WEIGHT = torch.diag(CLEAN)
MASKS = [[1, 1, 1, 1], [0, 1, 1, 1], [0, 1, 0, 1]]


def rejected(correction: str, temperature: float, position: int, q: Tensor | None) -> int:
    """The token after a rejected token 3, which no head finds likely."""
    log_q = (torch.tensor([0.1, 0.1, 0.1, 0.7]) if q is None else q).log()[None]
    proposal = Proposal(torch.tensor([3]), None if q is None else log_q, log_q, torch.arange(4))
    hidden = torch.ones(2, 4)
    view = Verification(
        hidden, hidden @ WEIGHT, lambda h: h @ WEIGHT, temperature, position, prompt=0
    )
    rule = FixedMasks(heads=3, p_drop=0.5, criterion="naive", correction=correction)
    verdict = rule.with_masks(MASKS).accept(proposal, view)
    assert verdict.num_accepted == 0
    return verdict.next_token


def centroid_law() -> Tensor:
    return (CLEAN * torch.tensor(MASKS) / 0.5).mean(0).softmax(-1)


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_at_temperature_0_the_token_after_a_rejection_is_an_arg_max(correction: str) -> None:
    assert int(centroid_law().argmax()) == 1
    expected = 1 if correction == "centroid" else 0
    assert {rejected(correction, 0.0, at, None) for at in range(20)} == {expected}


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("one_hot", [True, False])
def test_above_temperature_0_the_token_after_a_rejection_follows_the_stated_law(
    correction: str, one_hot: bool
) -> None:
    q = None if one_hot else torch.tensor([0.5, 0.1, 0.2, 0.2])
    p = CLEAN.softmax(-1)
    rest = p * torch.tensor([1.0, 1.0, 1.0, 0.0]) if q is None else (p - q).clamp(min=0)
    expected = {
        "argmax": torch.tensor([1.0, 0.0, 0.0, 0.0]),
        "sample": p,
        "centroid": centroid_law(),
        "residual": rest / rest.sum(),
    }[correction]
    draws = 2000
    counts = torch.bincount(
        torch.tensor([rejected(correction, 1.0, at, q) for at in range(draws)]), minlength=4
    )
    assert counts[expected == 0].sum() == 0
    seen = expected > 0
    wanted = (expected * draws)[seen]
    assert float(((counts[seen] - wanted) ** 2 / wanted).sum()) < 21.1  # 99.99 %, 3 degrees


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("filters", [{"top_k": 1}, {"top_k": 2}, {"top_p": 0.5}, {"top_p": 0.8}])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_correction_gives_a_token_that_the_filters_rule_out(
    temperature: float, filters: dict[str, Any], correction: str, make_scene: Any
) -> None:
    rejected = 0
    for seed in range(40):
        scene = make_scene(seed, length=1, scale=0.2)
        plain = scene.view(temperature)
        view = Verification(
            plain.hidden, plain.logits, plain.head, temperature, seed, prompt=7, **filters
        )
        allowed = law(view.logits[0], temperature or 1.0, **filters).isfinite()
        rule = DropMatch(correction=correction, seed=seed, p_drop=0.6, criterion="naive")
        worst = int(view.logits[0, scene.vocab_ids].argmin())
        proposal = scene.proposal([int(scene.vocab_ids[worst])], temperature)
        verdict = rule.accept(proposal, view)
        if verdict.num_accepted == 0:
            rejected += 1
            assert allowed[verdict.next_token]
    assert rejected > 20


def test_where_the_centroid_has_nothing_that_the_filters_leave_the_targets_law_stands_in() -> None:
    hidden, logits = torch.ones(2, 4), torch.tensor([[9.0, 0.0, 0.0, 0.0]] * 2)
    heads = torch.tensor([[-500.0, 0.0, 0.0, 0.0]] * 5)
    log_q = torch.tensor([[0.0]])
    proposal = Proposal(torch.tensor([3]), log_q, log_q, torch.tensor([3]))
    view = Verification(hidden, logits, lambda _: heads, 1.0, 0, 0, top_k=1)
    rule = DropMatch(correction="centroid", criterion="naive", diagnose=True)
    assert rule.accept(proposal, view).next_token == 0
    assert rule.diagnostics.summary()["total_variation"] == 0.0


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_the_token_after_a_whole_chain_is_the_targets_own(correction: str, make_scene: Any) -> None:
    scene = make_scene(step=1)
    for temperature in (0.0, 1.0):
        rule = DropMatch(correction=correction, seed=9)
        view = scene.view(temperature)
        verdict = rule.accept(scene.proposal(scene.best()[:-1], temperature), view)
        assert verdict.num_accepted == 4
        assert verdict.next_token == target_token(view, 4, 9)


def test_the_heads_go_through_the_soft_cap_of_the_targets_own_head(inputs: Path) -> None:
    expect = json.loads((inputs / "g18_expect.json").read_text())
    target = load_target(str(inputs / "target_softcap"))
    tokenizer = json.loads((inputs / "target_softcap" / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    ids = torch.tensor([[words["the"], words[expect["last_word"]]]])
    with torch.no_grad():
        hidden = target.forward(ids).hidden[0, -1:].repeat(2, 1)
        view = Verification(hidden, target.logits(hidden), target.logits, 1.0, 0, 0)
        p = law(view.logits[0], 1.0).exp()
        proposal = Proposal(torch.tensor([0]), None, torch.zeros(1, 1), torch.tensor([0]))
        heads = head_logits(DropMatch(), proposal, view)[0]
        kept = masks_at(DropMatch(), view, 0)
        raw = (hidden[0] * kept / 0.7) @ target.head_weight.T
    for word, probability in expect["probabilities"].items():
        assert float(p[words[word]]) == pytest.approx(probability, abs=1e-6)
    assert float(raw.abs().max()) > 60
    assert float(heads.abs().max()) <= 30
    torch.testing.assert_close(heads, 30 * torch.tanh(raw / 30))
