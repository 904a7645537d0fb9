"""What DropMatch reports: literal counts, and total variation against enumeration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vtrim.decoding.acceptors.dropmatch import CORRECTIONS, CRITERIA, DropMatch
from vtrim.decoding.protocol import Proposal, Verification
from vtrim.decoding.sampling import Place, law

NOTHING: dict[str, Any] = {
    "positions": 0,
    "p_drop": None,
    "criteria": {},
    "calibration": None,
    "agreement": None,
    "agreement_by_head": None,
    "clean_outside_heads": None,
    "head_histogram": {},
    "verdicts": {},
    "js_radius": None,
    "js_draft": None,
    "js_by_verdict": {},
    "head_probability": {},
    "clean_probability_by_head": None,
    "mean_clean_probability": None,
    "total_variation": None,
}


class FixedMasks(DropMatch):
    """DropMatch with the same given masks [K, d] at every position."""

    def with_masks(self, masks: Any) -> FixedMasks:
        object.__setattr__(self, "_given", torch.tensor(masks, dtype=torch.bool))
        return self

    def masks(self, place: Place, size: int, p_drop: float) -> Tensor:  # noqa: ARG002
        given: Tensor = self._given  # type: ignore[attr-defined]
        return given


def case_of_majority(inputs: Path) -> tuple[dict[str, Any], Verification, Proposal, Proposal]:
    """Arg-maxes 0 1 0, clean 0: a proposal kept by majority, and one that is rejected."""
    case = json.loads((inputs / "g21_dropmatch_masks.json").read_text())[3]
    weight, hidden = torch.tensor(case["head"]), torch.tensor(case["hidden"]).repeat(2, 1)
    view = Verification(hidden, hidden @ weight.T, lambda h: h @ weight.T, 0.0, 0, 0)
    log_q = torch.tensor(case["draft_law"]).log()[None]
    kept, rejected = (
        Proposal(torch.tensor([token]), None, log_q, torch.arange(4)) for token in (0, 3)
    )
    return case, view, kept, rejected


def test_judged_positions_are_counted_up_to_the_first_rejection(inputs: Path) -> None:
    case, view, kept, rejected = case_of_majority(inputs)
    rule = FixedMasks(heads=3, p_drop=0.5, diagnose=True).with_masks(case["masks"])
    rule.accept(kept, view)
    rule.accept(rejected, view)
    summary = rule.diagnostics.summary()
    assert (summary["positions"], summary["head_histogram"]) == (2, {"2": 2})
    assert (summary["p_drop"], summary["criteria"]) == (0.5, {"full": 2})
    assert summary["agreement"] == pytest.approx(2 / 3)
    assert summary["agreement_by_head"] == [1.0, 0.0, 1.0]
    assert summary["clean_outside_heads"] == 0.0
    assert summary["verdicts"] == {"majority": 1, "rejected": 1}
    radius, distance = 0.122566547, 0.131244406
    assert summary["js_radius"]["max"] == pytest.approx(radius, abs=1e-6)
    assert summary["js_draft"]["mean"] == pytest.approx(distance, abs=1e-6)
    assert set(summary["js_by_verdict"]) == {"majority", "rejected"}
    majority = summary["js_by_verdict"]["majority"]
    assert (majority["positions"], majority["draft"]) == (1, pytest.approx(distance, abs=1e-6))
    assert majority["farthest_head"] == pytest.approx(radius, abs=1e-6)
    assert 0 < majority["heads"] < radius
    clean = view.logits[0].softmax(-1).tolist()
    assert summary["mean_clean_probability"] == pytest.approx(clean[0], abs=1e-6)
    assert summary["head_probability"] == {"2": pytest.approx(case["centroid"][0], abs=1e-6)}
    assert summary["clean_probability_by_head"] == pytest.approx([clean[0], clean[1], clean[0]])
    assert summary["total_variation"] == 0.0  # greedy: both emitted the clean arg-max


def test_what_passes_both_rules_of_algorithm_1_has_its_laws_under_the_first() -> None:
    logits = torch.tensor([[3.0, 0.0, -1.0]] * 2)
    log_q = logits[:1].log_softmax(-1)  # the draft is the target itself
    proposal = Proposal(torch.tensor([0]), None, log_q, torch.arange(3))
    heads = torch.tensor([[3.0, 0.5, -1.0], [3.0, -0.5, -1.0]])
    view = Verification(torch.ones(2, 4), logits, lambda _: heads, 0.0, 0, 0)
    rule = DropMatch(heads=2, diagnose=True)
    assert rule.accept(proposal, view).reasons == ("majority",)
    assert set(rule.diagnostics.summary()["js_by_verdict"]) == {"js"}


def test_without_diagnose_what_costs_passes_over_the_vocabulary_is_left_out(inputs: Path) -> None:
    case, view, kept, _ = case_of_majority(inputs)
    rule = FixedMasks(heads=3, p_drop=0.5, criterion="naive").with_masks(case["masks"])
    rule.accept(kept, view)
    summary = rule.diagnostics.summary()
    left_out = {name for name, value in summary.items() if value in (None, {})}
    assert left_out == {
        "calibration", "js_radius", "js_draft", "js_by_verdict", "head_probability",
        "clean_probability_by_head", "mean_clean_probability", "total_variation",
    }  # fmt: skip


def test_nothing_judged_gives_a_summary_of_nothing() -> None:
    assert DropMatch().diagnostics.summary() == NOTHING
    json.dumps(NOTHING)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_diagnosing_changes_no_verdict(
    criterion: str, temperature: float, make_scene: Any, make_tree: Any
) -> None:
    for seed in range(10):
        scene, tree = make_scene(seed, noise=0.3), make_tree(seed)
        tokens = scene.vocab_ids[scene.draft_logits.argmax(-1)].tolist()
        quiet = DropMatch(criterion=criterion, seed=seed)
        loud = DropMatch(criterion=criterion, seed=seed, diagnose=True)
        for proposal, view in (
            (scene.proposal(tokens, temperature), scene.view(temperature)),
            (tree.proposal(temperature), tree.view(temperature)),
        ):
            assert loud.accept(proposal, view) == quiet.accept(proposal, view)
        summary = loud.diagnostics.summary()
        assert 0 <= summary["total_variation"] <= 1
        json.dumps(summary)


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(
    "filters", [{}, {"top_k": 6}, {"min_centroid_prob": 0.1}, {"accept_clean_argmax": False}]
)
def test_total_variation_is_that_of_the_emitted_token_by_enumeration(
    filters: dict[str, Any], criterion: str, correction: str, make_scene: Any
) -> None:
    """Every token of the draft is tried with its probability; the correction's law is known."""
    top_k = filters.get("top_k", 0)
    options = {name: value for name, value in filters.items() if name != "top_k"}
    for seed in range(8):
        scene = make_scene(seed, length=1, noise=0.3 * (1 + seed % 3), step=1 + seed % 2)
        plain = scene.view(0.9)
        view = Verification(plain.hidden, plain.logits, plain.head, 0.9, 100, 7, top_k=top_k)
        p = law(view.logits[0], 0.9, top_k).exp()
        settings = {"criterion": criterion, "correction": correction, "seed": seed, **options}
        emitted, missed = torch.zeros(24), 0.0
        for index, token in enumerate(scene.vocab_ids.tolist()):
            proposal = scene.proposal([token], 0.9)
            assert proposal.log_q is not None
            q = float(proposal.log_q[0, index].exp())
            rule = DropMatch(diagnose=True, **settings)
            if rule.accept(proposal, view).num_accepted:
                emitted[token] += q
            else:
                missed += q
        spread = scene.proposal([int(scene.vocab_ids[0])], 0.9)
        assert spread.log_q is not None
        q_all = torch.zeros(24).scatter(0, scene.vocab_ids, spread.log_q[0].exp())
        masks = DropMatch(seed=seed).masks((seed, 7, 100), 32, 0.3)
        heads = torch.stack([view.head((view.hidden[0] * m / 0.7)[None])[0] for m in masks])
        centroid = (heads.mean(0) / 0.9).softmax(-1) * (p > 0)
        rest = {
            "sample": p,
            "argmax": torch.nn.functional.one_hot(p.argmax(), 24).float(),
            "centroid": centroid / centroid.sum(),
            "residual": (p - q_all).clamp(min=0) / (p - q_all).clamp(min=0).sum(),
        }[correction]
        expected = float((emitted + missed * rest - p).abs().sum() / 2)
        assert rule.diagnostics.summary()["total_variation"] == pytest.approx(expected, abs=1e-5)


def test_at_temperature_0_total_variation_is_the_share_off_the_targets_arg_max(
    make_scene: Any,
) -> None:
    off, judged, rule = 0, 0, DropMatch(diagnose=True, p_drop=0.5)
    for seed in range(40):
        scene = make_scene(seed, noise=0.3)
        tokens = scene.vocab_ids[scene.draft_logits.argmax(-1)].tolist()
        verdict = rule.accept(scene.proposal(tokens), scene.view())
        count = min(verdict.num_accepted + 1, 4)  # the token behind a whole chain is not judged
        emitted = [*tokens[: verdict.num_accepted], verdict.next_token][:count]
        off += sum(a != b for a, b in zip(emitted, scene.best(), strict=False))
        judged += count
    assert off > 5
    assert rule.diagnostics.summary()["total_variation"] == pytest.approx(off / judged)
