"""The dynamic tree against one in plain loops: float64, no cache, each path run from scratch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from vtrim.decoding import draft_rows
from vtrim.decoding.chain import ChainDrafter
from vtrim.decoding.draft_size import TreeShape
from vtrim.decoding.protocol import ROOT, Ask, Proposal
from vtrim.decoding.tree import TreeDrafter
from vtrim.errors import OptionError
from vtrim.models.draft import Eagle3Draft
from vtrim.models.layout import load_draft
from vtrim.models.target import load_target

sys.path.insert(0, str(Path(__file__).parent))
from slow_draft import slow_tree, states, toy_draft

TARGETS = ("stories260k", "target_chain", "target_headdim", "target_softcap")
SHAPES = (
    TreeShape(12, 3, 3),
    TreeShape(26, 4, 5),
    TreeShape(2, 0, 1),
    TreeShape(5, 0, 4),
    TreeShape(22, 2, 3),  # the whole pool
    TreeShape(6, 4, 1),
)
WHOLE = 100  # a number of drafted tokens, and a room, that cut nothing


def tree(
    drafter: TreeDrafter, tokens: list[int], aux: Tensor, length: int = WHOLE, room: int = WHOLE
) -> Proposal:
    """The proposal behind ``tokens``; aux: [T - 1, 3d]."""
    drafter.open(1, len(tokens))
    drafter.prefill(0, tokens, aux[:-1])
    ask = Ask(0, tokens, aux[-1:], room, 0)
    return drafter.propose([ask], length, temperature=0.0, seed=0)[0]


def check(proposal: Proposal, expected: tuple[list[int], list[int], Tensor]) -> None:
    """Same nodes, parents and order; laws to within fp32."""
    assert (proposal.ids, list(proposal.parents or ())) == expected[:2]
    torch.testing.assert_close(proposal.log_q_soft.double(), expected[2], rtol=0, atol=2e-5)
    assert proposal.log_q is None


@pytest.fixture(scope="module")
def toy() -> tuple[Eagle3Draft, Tensor]:
    return toy_draft()


@pytest.fixture
def aux() -> Tensor:
    return torch.randn(9, 72, generator=torch.Generator().manual_seed(5))


TOKENS = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_toy_tree_has_the_nodes_parents_order_and_laws_of_plain_loops(
    toy: tuple[Eagle3Draft, Tensor], aux: Tensor, shape: TreeShape
) -> None:
    expected = slow_tree(
        *toy,
        TOKENS,
        aux,
        total_token=shape.total_token,
        levels=shape.depth + 1,
        top_k=shape.top_k,
    )
    check(tree(TreeDrafter(*toy, shape), TOKENS, aux), expected)


@pytest.mark.parametrize("name", TARGETS)
@torch.inference_mode()
def test_trees_of_real_states_equal_plain_loops(
    name: str, shared: Path, random_draft: Callable[..., Path]
) -> None:
    folder = shared / ("data/model" if name == "stories260k" else "inputs") / name
    target = load_target(str(folder), dtype=torch.float32)
    draft = load_draft(random_draft(folder, ids=range(1, int(target.config.vocab_size), 2))).model
    draft.lm_head.weight.mul_(8)  # far from uniform: no two nodes are worth the same
    tokens = [3, 1, 4, 1, 5, 9]
    aux = states(target, tokens)
    slow = slow_tree(draft, target.embedding, tokens, aux, total_token=14, levels=3, top_k=4)
    check(tree(TreeDrafter(draft, target.embedding, TreeShape(14, 2, 4)), tokens, aux), slow)


@pytest.mark.parametrize(("length", "room"), [(2, WHOLE), (WHOLE, 2), (1, 5), (3, 2)])
def test_the_number_of_drafted_tokens_and_the_room_cut_the_depth(
    toy: tuple[Eagle3Draft, Tensor], aux: Tensor, length: int, room: int
) -> None:
    drafter = TreeDrafter(*toy, TreeShape(16, 4, 3))
    levels = min(length, room)
    expected = slow_tree(*toy, TOKENS, aux, total_token=16, levels=levels, top_k=3)
    proposal = tree(drafter, TOKENS, aux, length, room)
    check(proposal, expected)
    assert max(proposal.depths) == levels - 1


@pytest.mark.parametrize(("length", "room"), [(0, 3), (3, 0)])
def test_without_room_nothing_is_drafted_and_the_rows_wait(
    toy: tuple[Eagle3Draft, Tensor], aux: Tensor, length: int, room: int
) -> None:
    drafter = TreeDrafter(*toy, TreeShape(8, 2, 3))
    assert tree(drafter, TOKENS[:-1], aux[:-1], length, room).size == 0
    ask = Ask(0, TOKENS, aux[-1:], WHOLE, 0)
    proposal = drafter.propose([ask], WHOLE, temperature=0.0, seed=0)[0]
    assert drafter.cache.committed[0] == len(aux)
    check(proposal, slow_tree(*toy, TOKENS, aux, total_token=8, levels=3, top_k=3))


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_a_tree_of_one_child_a_node_is_the_chain(
    toy: tuple[Eagle3Draft, Tensor], aux: Tensor, depth: int
) -> None:
    proposal = tree(TreeDrafter(*toy, TreeShape(depth + 2, depth, 1)), TOKENS, aux)
    chain = ChainDrafter(*toy)
    chain.open(1, WHOLE)
    other = chain.propose([Ask(0, TOKENS, aux, WHOLE, 0)], depth + 1, temperature=0.0, seed=0)[0]
    assert proposal.ids == other.ids
    assert proposal.is_chain
    torch.testing.assert_close(proposal.log_q_soft, other.log_q_soft, rtol=0, atol=1e-5)


def test_the_first_children_from_the_root_on_are_the_greedy_chain(
    toy: tuple[Eagle3Draft, Tensor], aux: Tensor
) -> None:
    chain = ChainDrafter(*toy)
    chain.open(1, WHOLE)
    greedy = chain.propose([Ask(0, TOKENS, aux, WHOLE, 0)], 6, temperature=0.0, seed=0)[0].ids
    proposal = tree(TreeDrafter(*toy, TreeShape(30, 5, 4)), TOKENS, aux)
    path, node = [], ROOT
    while node in proposal.children:
        node = proposal.children[node][0]
        path.append(proposal.ids[node])
    assert len(path) > 1
    assert path == greedy[: len(path)]


def test_parents_come_first_and_siblings_in_order_of_probability(
    toy: tuple[Eagle3Draft, Tensor], aux: Tensor
) -> None:
    proposal = tree(TreeDrafter(*toy, TreeShape(40, 5, 4)), TOKENS, aux)
    parents = proposal.parents
    assert parents is not None
    assert all(parent < node for node, parent in enumerate(parents))
    place = {int(token): index for index, token in enumerate(proposal.vocab_ids)}
    for siblings in proposal.children.values():
        worth = [float(proposal.log_q_soft[node, place[proposal.ids[node]]]) for node in siblings]
        assert worth == sorted(worth, reverse=True)
        assert len({proposal.ids[node] for node in siblings}) == len(siblings)


def test_a_parent_precedes_a_child_that_is_worth_as_much(aux: Tensor) -> None:
    draft, embedding = toy_draft(sharpness=1e4)  # every law puts all its mass on one token
    shape = TreeShape(12, 5, 3)
    proposal = tree(TreeDrafter(draft, embedding, shape), TOKENS, aux)
    assert proposal.size == 11
    assert max(proposal.depths) == shape.depth


def test_at_a_temperature_the_nodes_stay_and_their_laws_are_scaled(
    toy: tuple[Eagle3Draft, Tensor], aux: Tensor
) -> None:
    drafter = TreeDrafter(*toy, TreeShape(16, 3, 4))
    cold = tree(drafter, TOKENS, aux)
    drafter.open(1, WHOLE)
    hot = drafter.propose([Ask(0, TOKENS, aux, WHOLE, 0)], WHOLE, temperature=2.0, seed=1)[0]
    assert (hot.ids, hot.parents) == (cold.ids, cold.parents)
    scaled = (cold.log_q_soft / 2).log_softmax(-1)
    torch.testing.assert_close(hot.log_q_soft, scaled, rtol=1e-5, atol=1e-5)


def test_a_tree_does_not_depend_on_its_neighbours(
    toy: tuple[Eagle3Draft, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_rows, "CHUNK", 8)
    generator = torch.Generator().manual_seed(2)
    lengths, fresh, rooms, slots = [7, 30, 12, 2], [1, 4, 12, 1], [WHOLE, 2, 0, 4], [2, 0, 3, 1]
    together, alone = (TreeDrafter(*toy, TreeShape(16, 3, 4)) for _ in range(2))
    together.open(4, max(lengths))
    asks, singles = [], []
    for slot, length, new, room in zip(slots, lengths, fresh, rooms, strict=True):
        new = min(new, length - 1)
        tokens = torch.randint(40, (length,), generator=generator).tolist()
        aux = torch.randn(length - 1, 72, generator=generator)
        together.prefill(slot, tokens, aux[:-new])
        asks.append(Ask(slot, tokens, aux[-new:], room, slot))
        singles.append(tree(alone, tokens, aux, room=room))
    for own, other in zip(
        singles, together.propose(asks, WHOLE, temperature=0.0, seed=0), strict=True
    ):
        assert (own.ids, own.parents) == (other.ids, other.parents)
        torch.testing.assert_close(own.log_q_soft, other.log_q_soft, rtol=0, atol=1e-5)
    assert together.cache.committed == [29, 1, 6, 11]


@pytest.mark.parametrize(
    ("numbers", "remedy"),
    [
        ((1, 2, 4), "at least 2"),
        ((8, -1, 4), "0 .* or more"),
        ((8, 2, 0), "at least 1"),
        ((60, 2, 4), "Lower total_token to 37"),
        ((7, 4, 1), "Lower total_token to 6"),
    ],
)
def test_impossible_trees_are_refused_with_the_remedy(
    numbers: tuple[int, int, int], remedy: str
) -> None:
    with pytest.raises(OptionError, match=remedy) as refused:
        TreeShape(*numbers)
    assert "\n" not in str(refused.value)


def test_more_children_than_the_draft_has_tokens_are_refused(
    toy: tuple[Eagle3Draft, Tensor],
) -> None:
    TreeDrafter(*toy, TreeShape(8, 1, 20))
    with pytest.raises(OptionError, match=r"exceeds the 20 tokens .* Lower top_k"):
        TreeDrafter(*toy, TreeShape(8, 1, 21))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("sequences", [1, 3])
def test_nothing_waits_for_the_device_while_a_tree_grows(sequences: int) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    draft, embedding = toy_draft()
    drafter = TreeDrafter(draft.cuda(), embedding.cuda(), TreeShape(16, 3, 4))
    drafter.open(sequences, len(TOKENS))
    aux = torch.randn(len(TOKENS) - 1, 72).cuda()
    batch = drafter.commit([Ask(slot, TOKENS, aux, WHOLE, slot) for slot in range(sequences)])
    torch.cuda.set_sync_debug_mode("error")
    try:
        pool = drafter._grow(batch, 4)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert sum(scores.shape[1] for scores in pool.scores) == drafter.shape.nodes(4)
