"""What every acceptor in the table must do, and how names and options are checked."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vtrim.decoding import acceptors
from vtrim.decoding.acceptors import ACCEPTORS, exact_acceptor
from vtrim.decoding.protocol import Acceptor, Verdict
from vtrim.decoding.sampling import law
from vtrim.errors import OptionError

NAMES = sorted(ACCEPTORS)
CASES = [(name, t) for name in NAMES for t in (0.0, 0.7) if (name, t) != ("greedy", 0.7)]
NEEDED = {"cactus": {"delta": 0.3}, "fsd-js": {"threshold": 0.3}}
LOSSLESS = {"greedy", "rejection"}
TREES = {"dropmatch": {"criterion": "naive"}}


def make_acceptor(name: str, **options: Any) -> Acceptor:
    """The acceptor with the options that it cannot do without."""
    return acceptors.make_acceptor(name, **NEEDED.get(name, {}), **options)


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
    assert acceptor.lossless == (name in LOSSLESS)


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


@pytest.mark.parametrize(("name", "temperature"), CASES)
def test_in_a_tree_the_path_runs_from_the_root_and_ends_where_no_child_is_kept(
    name: str, temperature: float, make_tree: Any
) -> None:
    accepted = 0
    for seed in range(30):
        tree = make_tree(seed)
        rule = make_acceptor(name, temperature=temperature, seed=seed, **TREES.get(name, {}))
        verdict = rule.accept(tree.proposal(temperature), tree.view(temperature))
        above = [-1, *verdict.path][: len(verdict.path)]
        assert [tree.parents[node] for node in verdict.path] == above
        assert len(verdict.reasons) == len(verdict.path) <= 3
        assert 0 <= verdict.next_token < 24
        accepted += verdict.num_accepted
    assert accepted > 30


@pytest.mark.parametrize(("name", "temperature"), CASES)
def test_a_tree_judged_level_by_level_gives_the_same_tokens(
    name: str, temperature: float, make_tree: Any
) -> None:
    for seed in range(30):
        tree = make_tree(seed)
        rule = make_acceptor(name, temperature=temperature, seed=seed, **TREES.get(name, {}))
        whole = rule.accept(tree.proposal(temperature), tree.view(temperature))
        path: list[int] = []
        reasons: tuple[str, ...] = ()
        node = -1
        while True:
            level, old = tree.part(node, lambda depth: depth == 1)
            verdict = rule.accept(level.proposal(temperature), level.view(temperature))
            if not verdict.path:
                break
            node = old[verdict.path[0]]
            path, reasons = [*path, node], reasons + verdict.reasons
        assert Verdict(tuple(path), verdict.next_token, reasons) == whole


@pytest.mark.parametrize(("name", "temperature"), CASES)
def test_a_chain_written_as_a_tree_is_judged_alike(
    name: str, temperature: float, make_tree: Any
) -> None:
    for seed in range(20):
        tree = make_tree(seed, width=1, depth=4)
        rule = make_acceptor(name, temperature=temperature, seed=seed, **TREES.get(name, {}))
        proposal = tree.proposal(temperature)
        chain = type(proposal)(proposal.tokens, None, proposal.log_q_soft, proposal.vocab_ids)
        view = tree.view(temperature)
        assert rule.accept(proposal, view) == rule.accept(chain, view)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"dropmatch", "greedy"}))
@pytest.mark.parametrize("filters", [{"top_k": 2}, {"top_p": 0.4}])
def test_no_rule_keeps_or_gives_a_token_that_the_filters_rule_out(
    name: str, filters: dict[str, float], make_tree: Any
) -> None:
    options = {"fsd-js": {"threshold": 0.69}, "mars": {"theta": 0.0}, "cactus": {"delta": 5.0}}
    chosen = options.get(name, {})
    for seed in range(40):
        tree = make_tree(seed, width=4, depth=2)
        rule = acceptors.make_acceptor(name, temperature=1.0, seed=seed, **chosen)
        verdict = rule.accept(tree.proposal(1.0), tree.view(1.0, **filters))
        allowed = law(tree.view(1.0).logits, 1.0, **filters).isfinite()
        row = 0
        for node in verdict.path:
            assert allowed[row, tree.tokens[node]]
            row = node + 1
        assert allowed[row, verdict.next_token]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "options",
    [
        {"name": "greedy"},
        {"name": "rejection"},
        {"name": "cactus"},
        {"name": "typical"},
        {"name": "dropmatch", "p_drop": 0.0},
        {"name": "relaxed", "top_n": 1},
        {"name": "relaxed", "delta": 0.0},
        {"name": "mars", "theta": 1.0},
    ],
    ids=str,
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
        ({"name": "gredy"}, "unknown acceptor 'gredy'. Did you mean 'greedy'? Known: cactus,"),
        ({"name": "xyz"}, f"unknown acceptor 'xyz'. Known: {', '.join(NAMES)}."),
        ({"name": "fsd_js"}, "unknown acceptor 'fsd_js'. Did you mean 'fsd-js'?"),
        ({"name": "rejection", "heads": 3}, "unknown option 'heads'. Its options: seed."),
        ({"name": "greedy", "heads": 3}, "unknown option 'heads'. Its options: none."),
        ({"name": "greedy", "temperature": 0.5}, "greedy works at temperature 0 only, not at 0.5"),
        ({"name": "rejection", "temperature": -1.0}, "--temperature -1: give 0 (greedy)"),
        ({"name": "rejection", "temperature": float("nan")}, "--temperature nan: give 0"),
        ({"name": "rejection", "temperature": 1e-46}, "--temperature 1e-46: give 0"),
        ({"name": "cactus"}, "acceptor cactus needs delta=VALUE"),
        ({"name": "cactus", "delta": -0.1}, "delta=-0.1 must be at least 0."),
        ({"name": "cactus", "delta": float("inf")}, "delta=inf must be at least 0."),
        ({"name": "cactus", "delta": float("nan")}, "delta=nan must be at least 0."),
        ({"name": "cactus", "delta": "much"}, "delta='much' must be a number."),
        ({"name": "cactus", "delta": True}, "delta=True must be a number."),
        ({"name": "fsd-js"}, "acceptor fsd-js needs threshold=VALUE"),
        ({"name": "fsd-js", "threshold": 0.7}, "threshold=0.7 must be between 0 and 0.6931 (JS"),
        ({"name": "typical", "epsilon": 1.5}, "epsilon=1.5 must be between 0 and 1."),
        ({"name": "typical", "delta": -1.0}, "delta=-1 must be between 0 and 1."),
        ({"name": "typical", "theta": 0.5}, "'theta'. Its options: seed, epsilon, delta."),
        ({"name": "relaxed", "top_n": 0}, "top_n=0 must be at least 1."),
        ({"name": "relaxed", "top_n": 2.5}, "top_n=2.5 must be a whole number."),
        ({"name": "relaxed", "delta": 2.0}, "delta=2 must be between 0 and 1."),
        ({"name": "mars", "theta": 1.1}, "theta=1.1 must be between 0 and 1."),
        ({"name": "dropmatch", "heads": 0}, "--heads 0: at least 1 is needed"),
        ({"name": "dropmatch", "p_drop": 1.0}, "--p-drop 1: give 0 or more and below 1"),
        ({"name": "dropmatch", "p_drop": -0.1}, "--p-drop -0.1: give"),
        ({"name": "dropmatch", "p_drop": float("nan")}, "--p-drop nan: give"),
        ({"name": "dropmatch", "p_drop": "most"}, "--p-drop most: unknown. Known: auto, a share"),
        ({"name": "dropmatch", "target_agreement": 1.5}, "target_agreement=1.5 must be between 0"),
        ({"name": "dropmatch", "min_centroid_prob": 1.5}, "min_centroid_prob=1.5 must be between"),
        ({"name": "dropmatch", "criterion": "best"}, "--criterion best: unknown. Known: full,"),
        ({"name": "dropmatch", "correction": "best"}, "--correction best: unknown. Known:"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        acceptors.make_acceptor(**options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_greedy_refuses_a_view_above_temperature_0(make_scene: Any) -> None:
    scene = make_scene()
    with pytest.raises(OptionError, match="temperature 0 only"):
        make_acceptor("greedy").accept(scene.proposal([0], 1.0), scene.view(1.0))


def test_numbers_of_the_target_and_drafted_ids_reach_the_host_together(make_scene: Any) -> None:
    proposal = make_scene().proposal([4, 2, 6])
    assert proposal.fetch(torch.tensor([9, 7, 5, 3])) == [9, 7, 5, 3]
    proposal.tokens.zero_()  # not read a second time
    assert proposal.ids == [4, 2, 6]
    assert proposal.fetch(torch.tensor([1])) == [1]
