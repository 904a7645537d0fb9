"""DropMatch on trees: sibling order, shared masks, products of the head, devices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from vtrim.decoding.acceptors.dropmatch import CRITERIA, DropMatch
from vtrim.decoding.acceptors.judging import Judging
from vtrim.decoding.protocol import ROOT, Proposal, Verdict, Verification
from vtrim.decoding.sampling import Place, target_token


class Recorded(DropMatch):
    """DropMatch that notes where it asked for masks."""

    def noting(self, places: list[Place]) -> Recorded:
        object.__setattr__(self, "_places", places)
        return self

    def masks(self, place: Place, size: int, p_drop: float) -> Tensor:
        self._places.append(place)  # type: ignore[attr-defined]
        return super().masks(place, size, p_drop)


def plain_tree(rule: DropMatch, proposal: Proposal, view: Verification) -> Verdict:
    """The walk by loops, naive matching at temperature 0: a product of the head for each mask."""
    path: list[int] = []
    reasons: list[str] = []
    node = ROOT
    while True:
        row = node + 1
        clean = int(view.logits[row].argmax())
        nodes = proposal.children.get(node, [])
        place = (rule.seed, view.prompt, view.position + len(path))
        best = [
            int(view.head((view.hidden[row] * mask / (1 - float(rule.p_drop)))[None])[0].argmax())
            for mask in rule.masks(place, view.hidden.shape[1], float(rule.p_drop))
        ]
        first = [n for n in nodes if proposal.ids[n] == clean]
        kept = [n for n in nodes if proposal.ids[n] in best]
        if first:
            node, reason = first[0], "naive" if clean in best else "clean"
        elif kept:
            node, reason = kept[0], "naive"
        else:
            return Verdict(tuple(path), clean, tuple(reasons))
        path.append(node)
        reasons.append(reason)


def test_the_walk_down_a_tree_equals_the_plain_reference(make_tree: Any) -> None:
    reasons: list[str] = []
    strayed = 0
    for seed in range(60):
        scene = make_tree(seed, width=2 + seed % 2, step=1 + seed % 2)
        rule = DropMatch(seed=seed, p_drop=0.1 + 0.1 * (seed % 6))
        proposal, view = scene.proposal(0.0), scene.view(0.0)
        verdict = rule.accept(proposal, view)
        assert verdict == plain_tree(rule, proposal, view)
        reasons += verdict.reasons
        clean = view.logits.argmax(-1).tolist()
        above = [ROOT, *verdict.path]
        strayed += sum(
            proposal.ids[node] != clean[parent + 1]
            for parent, node in zip(above, verdict.path, strict=False)
        )
    assert {"naive", "clean"} == set(reasons)
    assert strayed > 5


def test_siblings_are_judged_in_the_drafters_order_without_the_clean_guard() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.9, -1.0]] * 4)
    view = Verification(torch.ones(4, 8), logits, lambda h: heads[: h.shape[0]], 0.0, 5, 0)
    heads = torch.nn.functional.one_hot(torch.tensor([1, 2, 1, 2, 1]), 4).float()
    soft = torch.zeros(3, 4).log_softmax(-1)
    proposal = Proposal(torch.tensor([3, 2, 1]), None, soft, torch.arange(4), (-1, -1, -1))
    assert DropMatch(accept_clean_argmax=False).accept(proposal, view).path == (1,)
    assert DropMatch().accept(proposal, view).path == (2,)  # the arg-max goes first when greedy
    warm = Verification(view.hidden, logits, view.head, 1.0, 5, 0)
    assert DropMatch().accept(proposal, warm).path == (1,)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_chain_given_as_a_tree_has_the_chains_verdict(criterion: str, make_scene: Any) -> None:
    for seed in range(20):
        scene = make_scene(seed, noise=0.3)
        tokens = scene.vocab_ids[scene.draft_logits.argmax(-1)].tolist()
        chain = scene.proposal(tokens)
        tree = Proposal(chain.tokens, None, chain.log_q_soft, chain.vocab_ids, (-1, 0, 1, 2))
        rule = DropMatch(seed=seed, criterion=criterion)
        assert rule.accept(tree, scene.view()) == rule.accept(chain, scene.view())


def test_no_criterion_is_full_for_chains_and_naive_for_trees(
    make_scene: Any, make_tree: Any
) -> None:
    rule = DropMatch(p_drop=0.5)
    for seed in range(10):
        scene = make_scene(seed, noise=0.3)
        rule.accept(scene.proposal(scene.vocab_ids[scene.draft_logits.argmax(-1)].tolist()),
                    scene.view())  # fmt: skip
    chains = dict(rule.diagnostics.criteria)
    assert set(chains) == {"full"}
    assert set(rule.diagnostics.verdicts) & {"js", "majority"}
    for seed in range(10):
        tree = make_tree(seed)
        rule.accept(tree.proposal(0.0), tree.view(0.0))
    assert rule.diagnostics.criteria["full"] == chains["full"]
    assert rule.diagnostics.criteria["naive"] > 10


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_law_criteria_hold_on_trees_too(temperature: float, make_tree: Any) -> None:
    for criterion in ("js", "full", "majority"):
        seen: set[str] = set()
        for seed in range(30):
            scene = make_tree(seed, noise=0.1 + 0.1 * (seed % 10))
            rule = DropMatch(criterion=criterion, seed=seed, accept_clean_argmax=False)
            seen.update(rule.accept(scene.proposal(temperature), scene.view(temperature)).reasons)
        assert seen == ({"js", "majority"} if criterion == "full" else {criterion})


def test_siblings_share_the_masks_of_their_position(make_tree: Any) -> None:
    scene = make_tree(1, width=3, depth=2)
    places: list[Place] = []
    rule = Recorded(seed=4).noting(places)
    proposal, view = scene.proposal(0.0), scene.view(0.0)
    judging = Judging(rule._rules(proposal, 7), proposal, view)
    logits = judging._head_logits([0, 1, 2, 3])  # the root and its three children
    assert sorted(places) == [(4, 7, 100), (4, 7, 101)]
    assert logits.shape == (4, 5, 24)


@pytest.mark.parametrize("criterion", [None, *CRITERIA])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_device_that_measures_all_rows_at_once_gives_the_same_verdicts(
    temperature: float,
    criterion: str | None,
    make_scene: Any,
    make_tree: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = []
    for seed in range(12):
        scene, tree = make_scene(seed, noise=0.3), make_tree(seed)
        tokens = scene.vocab_ids[scene.draft_logits.argmax(-1)].tolist()
        cases.append((scene.proposal(tokens, temperature), scene.view(temperature)))
        cases.append((tree.proposal(temperature), tree.view(temperature)))
    lazy, together = DropMatch(criterion=criterion), DropMatch(criterion=criterion)
    expected = [lazy.accept(*case) for case in cases]
    monkeypatch.setattr(Judging, "_on_host", property(lambda _: False))
    assert [together.accept(*case) for case in cases] == expected
    ours, theirs = together.diagnostics.summary(), lazy.diagnostics.summary()
    assert ours["head_histogram"] == theirs["head_histogram"]
    assert ours["js_radius"] == pytest.approx(theirs["js_radius"], abs=1e-6)


def test_the_token_after_a_whole_path_is_the_targets_own_at_its_depth(make_tree: Any) -> None:
    reached = 0
    for seed in range(30):
        scene = make_tree(seed, depth=2, width=3)
        rule, view = DropMatch(seed=seed), scene.view(1.0)
        verdict = rule.accept(scene.proposal(1.0), view)
        if verdict.num_accepted == 2:
            reached += 1
            assert verdict.next_token == target_token(view, verdict.path[-1] + 1, seed, 2)
    assert reached > 3
