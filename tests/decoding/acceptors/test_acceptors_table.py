"""What every acceptor in the table must do, and how names and options are checked."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vtrim.decoding.acceptors import ACCEPTORS, exact_acceptor, make_acceptor
from vtrim.decoding.protocol import Acceptor, Verdict
from vtrim.errors import OptionError

NAMES = sorted(ACCEPTORS)
CASES = [(name, t) for name in NAMES for t in (0.0, 0.7) if (name, t) != ("greedy", 0.7)]


def walk(
    acceptor: Acceptor, scene: Any, tokens: list[int], temperature: float, lengths: tuple[int, ...]
) -> tuple[tuple[str, ...], int]:
    """Judges a chain in blocks: the reasons of all accepted tokens, and the token after them."""
    reasons: tuple[str, ...] = ()
    for length in lengths:
        first = len(reasons)
        verdict = acceptor.accept(
            scene.proposal(tokens[first : first + length], temperature, first=first),
            scene.view(temperature, first=first),
        )
        reasons += verdict.reasons
        if verdict.num_accepted < length:
            break
    return reasons, verdict.next_token


@pytest.mark.parametrize("name", NAMES)
def test_each_entry_carries_its_own_name_and_says_whether_it_is_lossless(name: str) -> None:
    acceptor = make_acceptor(name)
    assert acceptor.name == name
    assert acceptor.lossless == (name != "dropmatch")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(20))
def test_at_temperature_0_a_draft_equal_to_the_target_is_always_accepted(
    name: str, seed: int, make_scene: Any
) -> None:
    scene = make_scene(seed, step=1)
    best = scene.best()
    verdict = make_acceptor(name, seed=seed).accept(scene.proposal(best[:-1]), scene.view())
    assert verdict.num_accepted == len(verdict.reasons) == 4
    assert verdict.next_token == best[-1]


@pytest.mark.parametrize(("name", "temperature"), CASES)
@pytest.mark.parametrize("seed", range(10))
def test_a_verdict_is_in_range_and_the_same_each_time(
    name: str, temperature: float, seed: int, make_scene: Any
) -> None:
    scene = make_scene(seed)
    tokens = scene.vocab_ids[scene.draft_logits.argmax(-1)].tolist()

    def judge() -> Verdict:
        return make_acceptor(name, temperature=temperature, seed=seed).accept(
            scene.proposal(tokens, temperature), scene.view(temperature)
        )

    verdict = judge()
    assert 0 <= verdict.num_accepted <= 4
    assert len(verdict.reasons) == verdict.num_accepted
    assert 0 <= verdict.next_token < 24
    assert judge() == verdict


@pytest.mark.parametrize(("name", "temperature"), CASES)
def test_the_result_does_not_depend_on_how_positions_fall_into_blocks(
    name: str, temperature: float, make_scene: Any
) -> None:
    accepted = 0
    for seed in range(60):
        scene = make_scene(seed, noise=0.3)
        tokens = scene.vocab_ids[scene.draft_logits.argmax(-1)].tolist()
        acceptor = make_acceptor(name, temperature=temperature, seed=seed)
        whole = walk(acceptor, scene, tokens, temperature, (4,))
        accepted += len(whole[0])
        for lengths in ((1, 1, 1, 1), (1, 3), (2, 2), (3, 1)):
            assert walk(acceptor, scene, tokens, temperature, lengths) == whole
    assert accepted > 60


@pytest.mark.parametrize(("name", "temperature"), CASES)
def test_an_empty_chain_gives_one_token_of_the_target(
    name: str, temperature: float, make_scene: Any
) -> None:
    scene = make_scene()
    acceptor = make_acceptor(name, temperature=temperature)
    verdict = acceptor.accept(
        scene.proposal([], temperature, first=4), scene.view(temperature, first=4)
    )
    assert (verdict.num_accepted, verdict.reasons) == (0, ())
    if temperature == 0:
        assert verdict.next_token == scene.best()[4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "options", [{"name": "greedy"}, {"name": "rejection"}, {"name": "dropmatch", "p_drop": 0.0}]
)
def test_exact_rules_at_temperature_0_keep_the_prefix_of_arg_maxes(
    options: dict[str, Any], dtype: torch.dtype, make_scene: Any
) -> None:
    for seed in range(30):
        scene = make_scene(seed, step=1)
        scene.hidden, scene.weight = scene.hidden.to(dtype), scene.weight.to(dtype)
        best = scene.best()
        wrong = seed % 5  # 4: nothing is wrong
        tokens = [(token + (row == wrong)) % 24 for row, token in enumerate(best[:-1])]
        verdict = make_acceptor(**options).accept(scene.proposal(tokens), scene.view())
        assert (verdict.num_accepted, verdict.next_token) == (wrong, best[wrong])


def test_the_exact_baseline_is_greedy_at_temperature_0_and_rejection_above() -> None:
    assert exact_acceptor(0.0, 1).name == "greedy"
    assert exact_acceptor(0.8, 1).name == "rejection"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "gredy"}, "unknown acceptor 'gredy'. Did you mean 'greedy'? Known: dropmatch,"),
        ({"name": "xyz"}, "unknown acceptor 'xyz'. Known: dropmatch, greedy, rejection."),
        ({"name": "rejection", "heads": 3}, "unknown option 'heads'. Its options: seed."),
        ({"name": "greedy", "heads": 3}, "unknown option 'heads'. Its options: none."),
        ({"name": "greedy", "temperature": 0.5}, "greedy works at temperature 0 only, not at 0.5"),
        ({"name": "rejection", "temperature": -1.0}, "temperature=-1 must be 0"),
        ({"name": "rejection", "temperature": float("nan")}, "temperature=nan must be 0"),
        ({"name": "dropmatch", "heads": 0}, "heads=0 must be at least 1"),
        ({"name": "dropmatch", "p_drop": 1.0}, "p_drop=1 must be at least 0 and below 1"),
        ({"name": "dropmatch", "p_drop": -0.1}, "p_drop=-0.1 must be"),
        ({"name": "dropmatch", "p_drop": float("nan")}, "p_drop=nan must be"),
        ({"name": "dropmatch", "min_centroid_prob": 1.5}, "min_centroid_prob=1.5 must lie"),
        ({"name": "dropmatch", "criterion": "best"}, "criterion='best' is unknown. Known: full,"),
        ({"name": "dropmatch", "correction": "best"}, "correction='best' is unknown. Known:"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        make_acceptor(**options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_greedy_refuses_a_view_above_temperature_0(make_scene: Any) -> None:
    scene = make_scene()
    with pytest.raises(OptionError, match="temperature 0 only"):
        make_acceptor("greedy").accept(scene.proposal([0], 1.0), scene.view(1.0))
