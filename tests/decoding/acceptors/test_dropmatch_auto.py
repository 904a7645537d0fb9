"""DropMatch's own choice of p: agreement at the target rate, edges, and what it depends on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.acceptors.calibration import LEAST, MOST, POSITIONS, STEPS, VOTES, Calibration
from vtrim.decoding.acceptors.dropmatch import DropMatch
from vtrim.decoding.sampling import keep_masks
from vtrim.errors import OptionError

GENERATOR = torch.Generator().manual_seed(0)
WEIGHT = torch.randn(300, 64, generator=GENERATOR)
STATES = torch.randn(200, 64, generator=GENERATOR)


def head(hidden: Tensor) -> Tensor:
    return hidden @ WEIGHT.T


def plain_agreement(hidden: Tensor, first: int, p_drop: float, heads: int = 2) -> float:
    """Share of heads at the clean arg-max, a product of the head for each mask."""
    hits = []
    for row, state in enumerate(hidden):
        masks = keep_masks((0, 0, first + row + 1), num_heads=heads, size=64, p_drop=p_drop)
        clean = int(head(state).argmax())
        hits += [int(head(state * mask / (1 - p_drop)).argmax()) == clean for mask in masks]
    return sum(hits) / len(hits)


@pytest.mark.parametrize("target", [0.6, 0.8, 0.9])
def test_p_is_the_most_at_which_the_heads_agree_at_the_target_rate(target: float) -> None:
    calibration = Calibration(target, seed=0)
    calibration.begin(STATES, head, prompt=0)
    p, last = calibration.p_drop, STATES[-POSITIONS:]
    assert p is not None
    assert LEAST < p < MOST
    assert calibration.agreement == pytest.approx(plain_agreement(last, 136, p))
    assert calibration.agreement >= target
    step = (MOST / LEAST) ** (1 / 2**STEPS)
    assert plain_agreement(last, 136, p * step * 1.01) < target


def test_a_lower_target_gives_more_noise() -> None:
    chosen = []
    for target in (0.95, 0.8, 0.6, 0.4):
        calibration = Calibration(target, seed=0)
        calibration.begin(STATES, head, prompt=0)
        chosen.append(calibration.p_drop)
    assert chosen == sorted(chosen)
    assert len(set(chosen)) == 4


def test_heads_that_agree_at_the_papers_p_take_the_papers_p() -> None:
    rows: list[int] = []

    def constant(hidden: Tensor) -> Tensor:
        rows.append(hidden.shape[0])
        return torch.arange(8.0).expand(hidden.shape[0], 8)

    calibration = Calibration(0.9, seed=0)
    calibration.begin(torch.ones(100, 64), constant, prompt=0)
    assert (calibration.p_drop, calibration.agreement) == (MOST, 1.0)
    assert rows == [POSITIONS, VOTES]


def test_where_the_least_noise_is_too_much_p_is_0_and_the_rule_is_exact_matching(
    make_scene: Any,
) -> None:
    def fickle(hidden: Tensor) -> Tensor:
        """A head that a masked copy of a state never gets right."""
        scores = torch.zeros(*hidden.shape[:-1], 4)
        scores[..., 1 if hidden.shape[0] > POSITIONS else 0] = 1
        return scores

    rule = DropMatch(p_drop="auto")
    rule.begin(torch.ones(POSITIONS, 64), fickle, 7)
    found = rule.diagnostics.summary()["calibration"]
    assert (found["p_drop"], found["agreement"]) == (0.0, 1.0)
    scene = make_scene(step=1)
    best = scene.best()
    wrong = [best[0], (best[1] + 1) % 24, *best[2:-1]]
    verdict = rule.accept(scene.proposal(wrong), scene.view())
    assert (verdict.num_accepted, verdict.next_token) == (1, best[1])


def test_the_choice_is_made_once_enough_positions_were_seen_and_kept_then() -> None:
    calls: list[int] = []

    def counting(hidden: Tensor) -> Tensor:
        calls.append(hidden.shape[0])
        return head(hidden)

    rule = DropMatch(p_drop="auto", seed=3)
    rule.begin(STATES[:40], counting, 0)
    early = rule.calibration.of(0)
    rule.begin(STATES[40:140], counting, 1)
    settled, spent = rule.calibration.of(1), len(calls)
    assert rule.calibration.positions == POSITIONS
    rule.begin(STATES[140:], counting, 2)
    assert rule.calibration.of(2) == settled
    assert rule.calibration.of(0) == early
    assert len(calls) == spent
    assert spent == 2 * (3 + STEPS)
    assert max(calls) == 40 * 4  # 128 votes need 4 at each of 40 positions


def test_a_prompt_has_the_same_p_whatever_is_begun_after_it() -> None:
    alone, together = DropMatch(p_drop="auto"), DropMatch(p_drop="auto")
    alone.begin(STATES[:20], head, 0)
    together.begin(STATES[:20], head, 0)
    together.begin(STATES[20:], head, 1)
    assert alone.calibration.of(0) == together.calibration.of(0)


def test_the_verdict_at_auto_is_that_of_the_p_it_chose(make_scene: Any) -> None:
    scene = make_scene(4, noise=0.3)
    auto = DropMatch(p_drop="auto", seed=4, target_agreement=0.7)
    auto.begin(scene.hidden.repeat(20, 1), scene.head, 7)
    p = auto.calibration.of(7)
    assert 0 < p < MOST
    tokens = scene.vocab_ids[scene.draft_logits.argmax(-1)].tolist()
    fixed = DropMatch(p_drop=p, seed=4)
    view, proposal = scene.view(), scene.proposal(tokens)
    assert auto.accept(proposal, view) == fixed.accept(proposal, view)
    assert auto.diagnostics.summary()["p_drop"] == p


def test_a_prompt_that_was_never_begun_is_refused_by_name(make_scene: Any) -> None:
    scene = make_scene()
    with pytest.raises(OptionError, match="--p-drop auto: prompt 7 is not known"):
        make_acceptor("dropmatch", p_drop="auto").accept(scene.proposal([0]), scene.view())


def test_a_prompt_of_one_token_is_enough_to_begin() -> None:
    rule = DropMatch(p_drop="auto")
    rule.begin(STATES[:0], head, 1)
    rule.begin(STATES[:1], head, 0)
    assert 0 <= rule.calibration.of(0) <= MOST
    assert rule.diagnostics.summary()["calibration"]["positions"] == 1


@pytest.mark.parametrize("length", [1, 7, 12, 43, 63, 64])
def test_p_rests_on_as_many_votes_whatever_the_number_of_positions(length: int) -> None:
    calls: list[int] = []

    def counting(hidden: Tensor) -> Tensor:
        calls.append(hidden.shape[0])
        return head(hidden)

    calibration = Calibration(0.8, seed=0)
    calibration.begin(STATES[:length], counting, prompt=0)
    assert calls[0] == length
    assert VOTES <= min(calls[1:]) == max(calls[1:]) < VOTES + length
    heads = calls[1] // length
    p = calibration.p_drop
    assert p
    assert calibration.agreement == pytest.approx(plain_agreement(STATES[:length], 0, p, heads))


def test_a_prompt_that_comes_again_adds_no_position_twice_and_keeps_its_p() -> None:
    rule = DropMatch(p_drop="auto", target_agreement=0.7)
    for prompt, last in enumerate((7, 15, 27)):
        rule.begin(STATES[last - 7 : last], head, prompt)
    before = dict(rule.calibration.of_prompt)
    assert len(set(before.values())) > 1
    for prompt, last in enumerate((7, 15, 27)):
        rule.begin(STATES[last - 7 : last], head, prompt)
    assert rule.calibration.positions == 21
    assert rule.calibration.of_prompt == before


def test_a_longer_turn_of_a_prompt_adds_what_is_new_behind_it() -> None:
    turns, whole = Calibration(0.7, seed=0), Calibration(0.7, seed=0)
    turns.begin(STATES[:20], head, prompt=0)
    turns.begin(STATES[:50], head, prompt=0)
    whole.begin(STATES[:50], head, prompt=0)
    assert turns.positions == 50
    assert turns.p_drop == whole.p_drop == turns.of(0)


def test_the_report_has_the_p_chosen_last_and_the_range_over_prompts() -> None:
    rule = DropMatch(p_drop="auto", target_agreement=0.7)
    for prompt, first in enumerate((0, 10, 100)):
        rule.begin(STATES[first : first + 10 * (prompt + 1)], head, prompt)
    given = list(rule.calibration.of_prompt.values())
    assert given[-1] < max(given)  # else the largest would pass for the last
    found = rule.diagnostics.summary()
    assert found["p_drop"] == found["calibration"]["p_drop"] == given[-1]
    assert found["calibration"]["p_drop_range"] == [min(given), max(given)]
