"""Chains of many sequences at once, of long prompts, and of few confident tokens."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vtrim.decoding import draft_rows
from vtrim.decoding.chain import ChainDrafter
from vtrim.decoding.draft_rows import DraftCache
from vtrim.decoding.protocol import Ask, Proposal
from vtrim.decoding.sampling import Purpose, draw
from vtrim.errors import OptionError
from vtrim.models.draft import Eagle3Draft

sys.path.insert(0, str(Path(__file__).parent))
from slow_draft import slow_chain, toy_draft

LENGTH = 5


@pytest.fixture(scope="module")
def toy() -> tuple[Eagle3Draft, Tensor]:
    return toy_draft()


class Text:
    """A sequence of random tokens and states, shown to a drafter piece by piece."""

    def __init__(self, prompt: int, length: int) -> None:
        generator = torch.Generator().manual_seed(prompt)
        self.prompt = prompt
        self.tokens: list[int] = torch.randint(40, (length,), generator=generator).tolist()
        self.aux = torch.randn(length - 1, 72, generator=generator)

    def ask(self, slot: int, old: int, new: int, room: int = LENGTH) -> Ask:
        """Rows old..old+new-1 are fresh."""
        end = old + new
        return Ask(slot, self.tokens[: end + 1], self.aux[old:end], room, self.prompt)


def draft(
    drafter: ChainDrafter, asks: list[Ask], temperature: float = 0.0, length: int = LENGTH
) -> list[Proposal]:
    return drafter.propose(asks, length, temperature=temperature, seed=11)


def equal(own: Proposal, other: Proposal) -> None:
    assert own.ids == other.ids
    torch.testing.assert_close(own.log_q_soft, other.log_q_soft, rtol=0, atol=1e-5)
    assert (own.log_q is None) == (other.log_q is None)


@pytest.mark.parametrize("temperature", [0.0, 1.3])
@pytest.mark.parametrize("min_confidence", [0.0, 0.2])
def test_a_chain_does_not_depend_on_its_neighbours_in_any_round(
    toy: tuple[Eagle3Draft, Tensor], temperature: float, min_confidence: float
) -> None:
    texts = [Text(prompt, 60) for prompt in range(4)]
    slots, prompts = [2, 0, 3, 1], [20, 3, 0, 9]
    rounds = [[1, 2, 7, 1], [5, 1, 3, 2], [1, 1, 6, 4]]  # fresh rows of each sequence
    together = ChainDrafter(*toy, min_confidence=min_confidence)
    together.open(4, 60)
    alone = [ChainDrafter(*toy, min_confidence=min_confidence) for _ in texts]
    for text, slot, length, single in zip(texts, slots, prompts, alone, strict=True):
        single.open(1, 60)
        single.prefill(0, text.tokens, text.aux[:length])
        together.prefill(slot, text.tokens, text.aux[:length])
    done = list(prompts)
    for fresh in rounds:
        asks = [t.ask(s, o, n) for t, s, o, n in zip(texts, slots, done, fresh, strict=True)]
        own = [
            draft(single, [text.ask(0, old, new)], temperature)[0]
            for single, text, old, new in zip(alone, texts, done, fresh, strict=True)
        ]
        for here, there in zip(own, draft(together, asks, temperature), strict=True):
            equal(here, there)
        done = [old + new for old, new in zip(done, fresh, strict=True)]
        assert [together.cache.committed[slot] for slot in slots] == done


def test_a_sampled_token_depends_on_its_absolute_position(toy: tuple[Eagle3Draft, Tensor]) -> None:
    text, drafter = Text(3, 12), ChainDrafter(*toy)
    drafter.open(1, 20)
    proposal = draft(drafter, [text.ask(0, 0, 11)], temperature=50.0)[0]  # nearly uniform
    for step, token in enumerate(proposal.ids):
        place = (11, text.prompt, len(text.tokens) + step)
        index = draw(proposal.log_q_soft[step].exp(), place, Purpose.DRAFT)
        assert token == int(proposal.vocab_ids[index])


def test_each_chain_is_cut_at_its_own_room(toy: tuple[Eagle3Draft, Tensor]) -> None:
    lengths, rooms = [12, 17, 15, 16], [5, 0, 2, 1]
    texts = [Text(prompt, length) for prompt, length in enumerate(lengths)]
    together, alone = ChainDrafter(*toy), ChainDrafter(*toy)
    together.open(4, 18)  # short chains go on beyond it while the first one is drafted
    old = [0, 15, 3, 14]  # nor do few fresh rows beside many find room for their padding
    for slot, text in enumerate(texts):
        together.prefill(slot, text.tokens, text.aux[: old[slot]])
    asks = [
        text.ask(slot, old[slot], lengths[slot] - 1 - old[slot], rooms[slot])
        for slot, text in enumerate(texts)
    ]
    proposals = draft(together, asks)
    assert [proposal.size for proposal in proposals] == rooms
    for slot, text in enumerate(texts):
        alone.open(1, 30)
        ask = text.ask(0, 0, lengths[slot] - 1, rooms[slot])
        equal(draft(alone, [ask])[0], proposals[slot])


def test_rows_of_rounds_without_a_draft_wait_for_the_next_pass(
    toy: tuple[Eagle3Draft, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_rows, "PATIENCE", 4)
    texts, drafter, alone = [Text(prompt, 30) for prompt in range(2)], ChainDrafter(*toy), []
    drafter.open(2, 30)
    for slot, text in enumerate(texts):
        drafter.prefill(slot, text.tokens, text.aux[:3])
        alone.append(ChainDrafter(*toy))
        alone[slot].open(1, 30)
        alone[slot].prefill(0, text.tokens, text.aux[:3])
    done = 3
    for fresh, committed in ((1, 3), (3, 3), (1, 8), (2, 8)):
        asks = [text.ask(slot, done, fresh) for slot, text in enumerate(texts)]
        assert [proposal.size for proposal in draft(drafter, asks, length=0)] == [0, 0]
        assert drafter.cache.committed == [committed, committed]
        done += fresh
    drafter.prefill(1, texts[1].tokens, texts[1].aux[:5])  # another takes the slot: nothing waits
    asks = [texts[0].ask(0, done, 1), texts[1].ask(1, 5, 1)]
    singles = [texts[0].ask(0, 3, done - 2), texts[1].ask(0, 3, 3)]
    for own, single, proposal in zip(alone, singles, draft(drafter, asks), strict=True):
        equal(draft(own, [single])[0], proposal)
    assert drafter.cache.committed == [done + 1, 6]


@pytest.mark.parametrize(
    ("slots", "views"), [([2, 1], True), ([1, 2, 3, 0], True), ([3, 0], False)], ids=str
)
def test_rows_of_slots_side_by_side_are_read_in_place(
    slots: list[int], views: bool, toy: tuple[Eagle3Draft, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter, read = ChainDrafter(*toy), set()
    drafter.open(4, 20)
    scatter = DraftCache.scatter

    def watched(cache: DraftCache, *given: Any) -> tuple[Tensor, Tensor]:
        keys, values = scatter(cache, *given)
        read.add(keys.untyped_storage().data_ptr() == cache.keys.untyped_storage().data_ptr())
        return keys, values

    monkeypatch.setattr(DraftCache, "scatter", watched)
    draft(drafter, [Text(slot, 12).ask(slot, 0, 11) for slot in slots])
    assert read == {views}


def test_long_prompts_in_chunks_give_the_chain_of_plain_loops(
    toy: tuple[Eagle3Draft, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_rows, "CHUNK", 7)
    text = Text(1, 31)
    chain, laws = slow_chain(*toy, text.tokens, text.aux, LENGTH)
    for prefilled in (0, 1, 7, 20, 29):
        drafter = ChainDrafter(*toy)
        drafter.open(1, 36)
        drafter.prefill(0, text.tokens, text.aux[:prefilled])
        proposal = draft(drafter, [text.ask(0, prefilled, 30 - prefilled)])[0]
        assert proposal.ids == chain
        torch.testing.assert_close(proposal.log_q_soft.double(), laws, rtol=0, atol=2e-5)


def test_a_slot_in_use_starts_anew_at_the_next_prefill(toy: tuple[Eagle3Draft, Tensor]) -> None:
    first, second, drafter = Text(1, 20), Text(2, 20), ChainDrafter(*toy)
    drafter.open(2, 20)
    drafter.prefill(1, first.tokens, first.aux)
    drafter.prefill(1, second.tokens, second.aux[:4])
    other = ChainDrafter(*toy)
    other.open(1, 20)
    equal(draft(drafter, [second.ask(1, 4, 3)])[0], draft(other, [second.ask(0, 0, 7)])[0])


@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_a_chain_ends_with_the_token_that_takes_its_probability_below_the_limit(
    toy: tuple[Eagle3Draft, Tensor], temperature: float
) -> None:
    place = {int(token): index for index, token in enumerate(toy[0].vocab_ids)}
    sizes = set()
    for prompt in range(12):
        text = Text(prompt, 12)
        whole, cut = ChainDrafter(*toy), ChainDrafter(*toy, min_confidence=0.3)
        for drafter in (whole, cut):
            drafter.open(1, 20)
        full, short = (draft(d, [text.ask(0, 0, 11)], temperature)[0] for d in (whole, cut))
        product, expected = 1.0, []
        for step, token in enumerate(full.ids):
            expected.append(token)
            product *= math.exp(float(full.log_q_soft[step, place[token]]))
            if product < 0.3:
                break
        assert short.ids == expected
        sizes.add(len(expected))
    assert len(sizes) > 2


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
def test_a_confidence_that_is_no_probability_is_refused(
    toy: tuple[Eagle3Draft, Tensor], value: float
) -> None:
    with pytest.raises(OptionError, match="min-confidence"):
        ChainDrafter(*toy, min_confidence=value)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("temperature", [0.0, 1.3])
@pytest.mark.parametrize("sequences", [1, 3])
def test_nothing_waits_for_the_device_while_a_chain_is_drafted(
    sequences: int, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    model, embedding = toy_draft()
    drafter = ChainDrafter(model.cuda(), embedding.cuda())
    drafter.open(sequences, 40)
    asks = [Text(prompt, 12).ask(prompt, 0, 11) for prompt in range(sequences)]
    asks = [replace(ask, aux=ask.aux.cuda()) for ask in asks]
    batch = drafter.commit(asks)
    monkeypatch.setattr(drafter, "commit", lambda _: batch)
    torch.cuda.set_sync_debug_mode("error")
    try:
        proposals = draft(drafter, asks, temperature)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert [proposal.size for proposal in proposals] == [LENGTH] * sequences
