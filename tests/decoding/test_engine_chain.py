"""The cached chain against a recomputation from scratch: plain loops, float64, no cache."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vtrim.decoding.cache import TargetCache
from vtrim.decoding.chain import ChainDrafter
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import GenerationSettings
from vtrim.decoding.protocol import Ask, Proposal, Verdict, Verification
from vtrim.models.draft import Eagle3Draft
from vtrim.models.layout import load_draft
from vtrim.models.target import Target, load_target

sys.path.insert(0, str(Path(__file__).parent))
from slow_draft import slow_chain, states

TARGETS = ("stories260k", "target_chain", "target_headdim", "target_softcap")
GREEDY = GenerationSettings(
    max_new_tokens=24, stop_ids=frozenset(), temperature=0.0, num_draft_tokens=4, seed=0
)
PROMPT = [3, 1, 4, 1, 5]


def folder_of(shared: Path, name: str) -> Path:
    return shared / ("data/model" if name == "stories260k" else "inputs") / name


@pytest.fixture(scope="module", params=TARGETS)
def pair(
    request: pytest.FixtureRequest, shared: Path, random_draft: Callable[..., Path]
) -> tuple[Target, Eagle3Draft]:
    folder = folder_of(shared, request.param)
    target = load_target(str(folder), dtype=torch.float32)
    rows = int(target.config.vocab_size)
    return target, load_draft(random_draft(folder, ids=range(1, rows, 2))).model


class Sometimes:
    """Accepts 0, 1, 2, ... of the chain in turn, whatever it holds, and tells who watches."""

    name, lossless = "sometimes", False

    def __init__(self, watch: Callable[[Proposal, Verification], None]) -> None:
        self.watch, self.calls = watch, 0

    def begin(self, hidden: Tensor, head: Callable[[Tensor], Tensor], prompt: int) -> None:
        pass

    def accept(self, proposal: Proposal, view: Verification) -> Verdict:
        count = self.calls % (proposal.size + 1)
        self.calls += 1
        self.watch(proposal, view)
        return Verdict(tuple(range(count)), int(view.logits[count].argmax()), ("turn",) * count)


@torch.inference_mode()
def test_cached_chains_equal_a_recomputation_from_scratch_in_tokens_and_laws(
    pair: tuple[Target, Eagle3Draft],
) -> None:
    target, draft = pair
    seen: list[tuple[Proposal, int]] = []
    acceptor = Sometimes(lambda proposal, view: seen.append((proposal, view.position)))
    engine = Engine(target, ChainDrafter(draft, target.embedding))
    reply = engine.decode(PROMPT, GREEDY, acceptor).tokens
    drafted = [(proposal, position) for proposal, position in seen if proposal.size]
    assert len(drafted) > 5
    for proposal, position in drafted:
        tokens = [*PROMPT, *reply][:position]
        aux = states(target, tokens)
        chain, laws = slow_chain(draft, target.embedding, tokens, aux, proposal.size)
        assert proposal.ids == chain
        torch.testing.assert_close(proposal.log_q_soft.double(), laws, rtol=0, atol=2e-5)
        assert proposal.log_q is None


@torch.inference_mode()
def test_the_comparison_notices_post_norm_feedback_and_layers_one_off(
    pair: tuple[Target, Eagle3Draft],
) -> None:
    target, draft = pair
    tokens = [*PROMPT, 9]
    aux = states(target, tokens)
    right = slow_chain(draft, target.embedding, tokens, aux, 4)[1]
    wrong = slow_chain(draft, target.embedding, tokens, aux, 4, feedback="post-norm")[1]
    assert float((right - wrong).abs().max()) > 1e-3
    if target.name.endswith("stories260k"):  # every layer of the other targets adds 0
        off = states(target, tokens, tuple(layer - 1 for layer in target.aux_layer_ids))
        wrong = slow_chain(draft, target.embedding, tokens, off, 4)[1]
        assert float((right - wrong).abs().max()) > 1e-3


@torch.inference_mode()
def test_only_distances_between_positions_matter(pair: tuple[Target, Eagle3Draft]) -> None:
    target, draft = pair
    tokens = [*PROMPT, 9]
    aux = states(target, tokens)
    here = slow_chain(draft, target.embedding, tokens, aux, 3)
    there = slow_chain(draft, target.embedding, tokens, aux, 3, first_position=1)
    torch.testing.assert_close(here[1], there[1], rtol=0, atol=1e-6)


@torch.inference_mode()
def test_after_each_round_the_caches_equal_a_fresh_prefill(
    pair: tuple[Target, Eagle3Draft],
) -> None:
    target, draft = pair
    drafter = ChainDrafter(draft, target.embedding)
    engine = Engine(target, drafter)
    kept: list[tuple[int, list[Tensor], list[Tensor]]] = []

    def watch(proposal: Proposal, view: Verification) -> None:
        # What the rounds before have left, and what this round's draft has committed.
        rows = view.position - 1
        layers: Any = engine.cache.layers
        ours = [x[:1, :, :rows].clone() for layer in layers for x in (layer.keys, layer.values)]
        drafts = []
        if proposal.size:  # without room for a draft, its rows are not needed
            drafts = [x[:1, :, :rows].clone() for x in (drafter.cache.keys, drafter.cache.values)]
        kept.append((rows, ours, drafts))

    reply = engine.decode(PROMPT, GREEDY, Sometimes(watch)).tokens
    tokens = [*PROMPT, *reply]
    other = ChainDrafter(draft, target.embedding)
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
    assert sum(bool(drafts) for _, _, drafts in kept) > 5


@torch.inference_mode()
def test_sampled_chains_report_the_law_they_were_drawn_from(
    pair: tuple[Target, Eagle3Draft],
) -> None:
    target, draft = pair
    drafter = ChainDrafter(draft, target.embedding)
    tokens = [*PROMPT, 9]
    aux = target.forward(torch.tensor([tokens[:-1]])).aux[0]

    def chain(temperature: float) -> Proposal:
        drafter.open(1, 16)
        drafter.prefill(0, tokens, aux[:-1])
        ask = Ask(0, tokens, aux[-1:], 8, 0)
        return drafter.propose([ask], 3, temperature=temperature, seed=7)[0]

    hot, again, cold = chain(2.0), chain(2.0), chain(0.0)
    assert hot.ids == again.ids
    assert hot.log_q is hot.log_q_soft
    assert hot.log_q is not None
    torch.testing.assert_close(hot.log_q.exp().sum(-1), torch.ones(3))
    # row 0 has the same logits in both: halved before the softmax at temperature 2
    expected = torch.log_softmax(cold.log_q_soft[0] / 2, dim=-1)
    torch.testing.assert_close(hot.log_q[0], expected, rtol=1e-5, atol=1e-5)
    assert set(hot.ids) <= set(draft.vocab_ids.tolist())
