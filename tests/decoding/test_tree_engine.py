"""Trees through the engine: the reply of plain decoding, and caches as after a fresh prefill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.cache import PositionLayer, TargetCache
from vtrim.decoding.draft_size import TreeShape
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import GenerationSettings
from vtrim.decoding.protocol import Acceptor, Proposal, Verdict, Verification
from vtrim.decoding.tree import TreeDrafter
from vtrim.models.draft import Eagle3Draft
from vtrim.models.layout import load_draft
from vtrim.models.target import Target, load_target

TARGETS = ("stories260k", "target_chain", "target_headdim", "target_softcap")
GREEDY = GenerationSettings(
    max_new_tokens=24, stop_ids=frozenset(), temperature=0.0, num_draft_tokens=9, seed=0
)
PROMPTS = [[3, 1, 4, 1, 5], [9], [2, 6, 5, 3, 5, 8, 9, 7], [11, 2]]
# Wide enough that a draft with random weights now and then holds the target's token, and two deep.
WIDE = TreeShape(90, 2, 24)


@pytest.fixture(scope="module", params=TARGETS)
def pair(
    request: pytest.FixtureRequest, shared: Path, random_draft: Callable[..., Path]
) -> tuple[Target, Eagle3Draft]:
    name = request.param
    folder = shared / ("data/model" if name == "stories260k" else "inputs") / name
    target = load_target(str(folder), dtype=torch.float32)
    return target, load_draft(random_draft(folder)).model


class Watched:
    """An acceptor, and who is told of each round before it judges."""

    lossless = True

    def __init__(self, acceptor: Acceptor, watch: Callable[[Proposal, Verification], None]) -> None:
        self.name, self.acceptor, self.watch = acceptor.name, acceptor, watch
        self.begin = acceptor.begin
        self.branches = 0  # accepted tokens that are not their parent's first child

    def accept(self, proposal: Proposal, view: Verification) -> Verdict:
        self.watch(proposal, view)
        verdict = self.acceptor.accept(proposal, view)
        first = {children[0] for children in proposal.children.values()}
        self.branches += sum(node not in first for node in verdict.path)
        return verdict


@torch.inference_mode()
def test_greedy_replies_with_trees_are_those_of_plain_decoding(
    pair: tuple[Target, Eagle3Draft],
) -> None:
    target, draft = pair
    engine = Engine(target, TreeDrafter(draft, target.embedding, WIDE))
    accepted = 0
    for prompt in PROMPTS:
        reply = engine.decode(prompt, GREEDY, make_acceptor("greedy"))
        assert reply.tokens == engine.decode_plain(prompt, GREEDY).tokens
        accepted += sum(reply.accepted)
    assert accepted > 0


@torch.inference_mode()
def test_batches_with_trees_give_the_replies_of_plain_decoding(
    pair: tuple[Target, Eagle3Draft],
) -> None:
    target, draft = pair
    engine = Engine(target, TreeDrafter(draft, target.embedding, WIDE))
    replies = engine.decode_many(PROMPTS, GREEDY, make_acceptor("greedy"), batch_size=3)
    for prompt, reply in zip(PROMPTS, replies, strict=True):
        assert reply.tokens == engine.decode_plain(prompt, GREEDY).tokens


def test_a_tree_wider_than_the_spare_columns_moves_the_cache_once_at_most(
    pair: tuple[Target, Eagle3Draft], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draft = pair
    moved: list[int] = []
    resize = PositionLayer.resize

    def watched(layer: PositionLayer, slots: int, capacity: int, used: int) -> None:
        if layer.is_initialized and layer.is_last:
            moved.append(capacity)
        resize(layer, slots, capacity, used)

    monkeypatch.setattr(PositionLayer, "resize", watched)
    engine = Engine(target, TreeDrafter(draft, target.embedding, TreeShape(100, 2, 24)))
    chosen = replace(GREEDY, max_new_tokens=58)
    widths: list[int] = []
    acceptor = Watched(make_acceptor("greedy"), lambda proposal, _: widths.append(proposal.size))
    reply = engine.decode(PROMPTS[0], chosen, acceptor)
    assert len(reply.tokens) == 58
    assert widths.count(99) > 20
    assert len(moved) <= 1


@torch.inference_mode()
def test_after_each_round_with_a_tree_the_caches_equal_a_fresh_prefill(
    pair: tuple[Target, Eagle3Draft],
) -> None:
    target, draft = pair
    drafter = TreeDrafter(draft, target.embedding, WIDE)
    engine = Engine(target, drafter)
    kept: list[tuple[int, list[Tensor], list[Tensor]]] = []

    def watch(proposal: Proposal, view: Verification) -> None:
        rows = view.position - 1
        layers: Any = engine.cache.layers
        ours = [x[:1, :, :rows].clone() for layer in layers for x in (layer.keys, layer.values)]
        drafts = []
        if proposal.size:  # without room for a draft, its rows are not needed
            drafts = [x[:1, :, :rows].clone() for x in (drafter.cache.keys, drafter.cache.values)]
        kept.append((rows, ours, drafts))

    acceptor, branches = Watched(make_acceptor("greedy"), watch), 0
    for prompt in PROMPTS:
        kept.clear()
        tokens = [*prompt, *engine.decode(prompt, GREEDY, acceptor).tokens]
        other = TreeDrafter(draft, target.embedding, WIDE)
        for rows, ours, drafts in kept:
            fresh = TargetCache(target.config, 1, rows)
            states = target.forward(torch.tensor([tokens[:rows]]), cache=fresh)
            layers: Any = fresh.layers
            new = [x[:1, :, :rows] for layer in layers for x in (layer.keys, layer.values)]
            for here, there in zip(ours, new, strict=True):
                torch.testing.assert_close(here, there, rtol=1e-5, atol=1e-5)
            other.open(1, rows)
            other.prefill(0, tokens, states.aux[0])
            for here, there in zip(drafts, (other.cache.keys, other.cache.values), strict=False):
                torch.testing.assert_close(here, there[:, :, :rows], rtol=1e-5, atol=1e-5)
        branches += acceptor.branches
    assert branches > 0  # rows that do not lie side by side were kept
