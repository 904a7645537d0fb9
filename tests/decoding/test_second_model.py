"""A second causal LM drafts: the same as its own uncached forward, whatever was kept of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vtrim.decoding.protocol import Ask, Proposal
from vtrim.decoding.sampling import Purpose, draw, law
from vtrim.decoding.second_model import CHUNK, PATIENCE, ModelDrafter
from vtrim.errors import MismatchError
from vtrim.models.lean import fast_target
from vtrim.models.skipping import without_layers
from vtrim.models.target import Target, TargetStates, load_target
from vtrim.vocab import DraftVocab

NONE = torch.empty(0, 0)


@pytest.fixture(scope="module")
def load(shared: Path) -> Callable[[str], Target]:
    kept: dict[str, Target] = {}

    def one(name: str) -> Target:
        if name not in kept:
            place = "data/model" if name == "stories260k" else "inputs"
            folder = str(shared / place / name)
            kept[name] = load_target(folder, dtype=torch.float32, aux_layer_ids=())
        return kept[name]

    return one


@torch.inference_mode()
def reference(
    model: Target, ask: Ask, length: int, ids: Tensor, temperature: float, seed: int
) -> tuple[list[int], Tensor]:
    """The chain and its laws by a whole forward a token, without a cache."""
    tokens, laws = list(ask.tokens), []
    for _ in range(length):
        hidden = model.forward(torch.tensor([tokens])).hidden[0, -1:]
        scores = model.logits(hidden)[0, ids].float()
        laws.append(law(scores, temperature) if temperature else scores.log_softmax(-1))
        index = (
            draw(laws[-1].exp(), (seed, ask.prompt, len(tokens)), Purpose.DRAFT)
            if temperature
            else scores.argmax()
        )
        tokens.append(int(ids[index]))
    return tokens[len(ask.tokens) :], torch.stack(laws)


def grow(text: list[int], proposal: Proposal, dice: random.Random, rows: int) -> None:
    """Takes some of the drafted tokens over, then a token of the target's own."""
    kept = dice.randint(0, proposal.size)
    text += [*proposal.ids[:kept], dice.randrange(rows)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", ["stories260k", "target_headdim", "target_softcap"])
@torch.inference_mode()
def test_each_round_drafts_what_an_uncached_forward_of_the_model_gives(
    name: str, temperature: float, load: Callable[[str], Target]
) -> None:
    target = load(name)
    model = without_layers(target, [1])
    vocab = DraftVocab.of(range(0, target.vocab_size, 2), target.vocab_size)
    drafter = ModelDrafter(model, target, vocab)
    dice = random.Random(2)
    drafter.open(1, 120)
    text = [dice.randrange(50) for _ in range(9)]
    drafter.prefill(0, text, NONE)
    text.append(3)
    for round_ in range(14):
        length = dice.choice([0, 1, 3, 5])
        ask = Ask(0, text, NONE, 4, 7)
        (proposal,) = drafter.propose([ask], length, temperature=temperature, seed=5)
        if length:
            ids = torch.from_numpy(vocab.ids)
            wanted, laws = reference(model, ask, min(length, 4), ids, temperature, 5)
            assert proposal.ids == wanted, round_
            torch.testing.assert_close(proposal.log_q_soft, laws, rtol=1e-3, atol=1e-4)
            assert (proposal.log_q is None) == (temperature == 0)
        assert proposal.size == min(length, 4)
        grow(text, proposal, dice, target.vocab_size)


@pytest.mark.parametrize("name", ["stories260k", "target_headdim", "target_softcap"])
@torch.inference_mode()
def test_sequences_drafted_together_draft_what_each_drafts_alone(
    name: str, load: Callable[[str], Target]
) -> None:
    target = load(name)
    model = without_layers(target, [2])
    together, dice = ModelDrafter(model, target), random.Random(3)
    together.open(4, 100)
    texts: list[list[int]] = [[] for _ in range(4)]
    for _ in range(12):
        slots = sorted(dice.sample(range(4), dice.randint(1, 4)), key=lambda _: dice.random())
        for slot in slots:
            if not texts[slot] or len(texts[slot]) > 80:  # a new sequence takes the slot
                texts[slot][:] = [dice.randrange(50) for _ in range(dice.randint(1, 12))]
                together.prefill(slot, texts[slot], NONE)
                texts[slot].append(dice.randrange(50))
        asks = [Ask(slot, texts[slot], NONE, dice.randint(1, 4), slot) for slot in slots]
        proposals = together.propose(asks, 3, temperature=0.9, seed=1)
        for ask, proposal in zip(asks, proposals, strict=True):
            alone = ModelDrafter(model, target)
            alone.open(1, 100)
            alone.prefill(0, ask.tokens[:-1] or ask.tokens, NONE)
            own = Ask(0, ask.tokens, NONE, ask.room, ask.prompt)
            (single,) = alone.propose([own], 3, temperature=0.9, seed=1)
            assert proposal.ids == single.ids
            torch.testing.assert_close(proposal.log_q, single.log_q, rtol=1e-3, atol=1e-4)
            grow(texts[ask.slot], proposal, dice, target.vocab_size)


class Counted(Target):
    """Counts the tokens of every forward."""

    def __init__(self, target: Target) -> None:
        vars(self).update(vars(target))
        self.passes: list[int] = []

    def forward(self, input_ids: Tensor, **options: Any) -> TargetStates:
        self.passes.append(input_ids.shape[1])
        return super().forward(input_ids, **options)


@torch.inference_mode()
def test_every_token_passes_the_model_once(load: Callable[[str], Target]) -> None:
    model = Counted(load("stories260k"))
    drafter = ModelDrafter(model, load("stories260k"))
    drafter.open(1, 2000)
    text = [1, *range(300, 310)]
    drafter.prefill(0, text, NONE)
    text.append(5)
    for kept, passes in ((3, [1, 1, 1]), (1, [2, 1, 1]), (0, [1, 1, 1]), (2, [1, 1, 1])):
        model.passes.clear()
        (proposal,) = drafter.propose([Ask(0, text, NONE, 9, 0)], 3, temperature=0.0, seed=0)
        assert model.passes == passes
        text += [*proposal.ids[:kept], 77]


@torch.inference_mode()
def test_asked_again_without_a_new_token_it_drafts_the_same(
    load: Callable[[str], Target],
) -> None:
    drafter = ModelDrafter(load("stories260k"), load("stories260k"))
    drafter.open(1, 100)
    drafter.prefill(0, [1, 403], NONE)
    ask = Ask(0, [1, 403, 407], NONE, 9, 0)
    first, again = (drafter.propose([ask], 3, temperature=0.0, seed=0)[0].ids for _ in range(2))
    assert first == again


@torch.inference_mode()
def test_tokens_of_rounds_without_a_draft_wait_until_they_are_many(
    load: Callable[[str], Target],
) -> None:
    model = Counted(load("stories260k"))
    drafter = ModelDrafter(model, load("stories260k"))
    drafter.open(1, 2000)
    drafter.prefill(0, [1, *[300] * CHUNK], NONE)
    assert model.passes == [CHUNK, 1]
    text = [1, *[300] * CHUNK]
    model.passes.clear()
    for _ in range(PATIENCE):
        text.append(301)
        assert drafter.propose([Ask(0, text, NONE, 9, 0)], 0, temperature=0.0, seed=0)[0].size == 0
    assert model.passes == []
    text.append(301)
    drafter.propose([Ask(0, text, NONE, 9, 0)], 0, temperature=0.0, seed=0)
    assert model.passes == [PATIENCE + 1]


@torch.inference_mode()
def test_a_chain_ends_with_the_token_that_makes_it_unlikely(
    load: Callable[[str], Target],
) -> None:
    target = load("stories260k")

    def chain(least: float) -> Proposal:
        drafter = ModelDrafter(target, target, min_confidence=least)
        drafter.open(1, 100)
        drafter.prefill(0, [1], NONE)
        return drafter.propose([Ask(0, [1, 403, 407], NONE, 99, 0)], 8, temperature=0.0, seed=0)[0]

    whole = chain(0.0)
    steps = whole.log_q_soft.gather(1, whole.tokens[:, None])[:, 0]
    chance = steps.cumsum(0).exp().tolist()
    assert whole.size == 8
    for least in (0.9, 0.5, 0.2, 0.05):
        ended = next((j for j, value in enumerate(chance, 1) if value < least), 8)
        assert chain(least).ids == whole.ids[:ended]


@torch.inference_mode()
def test_a_model_with_fewer_or_more_padding_rows_drafts_ids_that_both_have(
    load: Callable[[str], Target],
) -> None:
    target, small = load("target_chain"), load("target_headdim")
    rows = torch.nn.Linear(32, 70, bias=False)
    rows.weight.data[:64] = small.model.lm_head.weight
    rows.weight.data[64:] = 1e3
    kept, small.model.lm_head = small.model.lm_head, rows
    try:
        drafter = ModelDrafter(small, target)
        drafter.open(1, 50)
        drafter.prefill(0, [5, 6], NONE)
        ask = Ask(0, [5, 6, 69], NONE, 9, 0)  # an id that the small model has no embedding of
        (proposal,) = drafter.propose([ask], 3, temperature=0.0, seed=0)
    finally:
        small.model.lm_head = kept
    assert proposal.log_q_soft.shape == (3, 64)
    assert max(proposal.ids) < 64


@pytest.mark.parametrize(
    ("ids", "rows"), [([1, 2], 65), ([1, 2], 63)], ids=["made for more rows", "made for fewer"]
)
def test_a_draft_vocabulary_of_another_target_is_refused(
    ids: Sequence[int], rows: int, load: Callable[[str], Target]
) -> None:
    target = load("target_chain")
    with pytest.raises(MismatchError, match=f"a head of {rows} rows.* has 64 rows"):
        ModelDrafter(target, target, DraftVocab.of(ids, rows))


def test_a_draft_vocabulary_beyond_the_draft_model_s_rows_is_refused(
    load: Callable[[str], Target],
) -> None:
    target, small = load("stories260k"), load("target_chain")
    vocab = DraftVocab.of([3, 64], target.vocab_size)
    with pytest.raises(MismatchError, match="ids reach 64"):
        ModelDrafter(small, target, vocab)


@torch.inference_mode()
def test_a_lean_model_drafts_like_transformers_forward(load: Callable[[str], Target]) -> None:
    target = load("stories260k")
    told: list[str] = []
    lean = fast_target(target, told.append)
    assert lean is not target, told
    chains = []
    for whole in (target, lean):
        drafter = ModelDrafter(without_layers(whole, [1]), whole)
        drafter.open(2, 100)
        for slot, text in enumerate(([1, 403], [1, 300, 5])):
            drafter.prefill(slot, text, NONE)
        asks = [Ask(0, [1, 403, 407], NONE, 9, 0), Ask(1, [1, 300, 5, 77], NONE, 9, 1)]
        chains.append([p.ids for p in drafter.propose(asks, 4, temperature=0.0, seed=0)])
    assert chains[0] == chains[1]
