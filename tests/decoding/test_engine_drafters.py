"""Greedy decoding with n-grams and second models gives plain decoding's tokens."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
import torch

from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.adaptive import DraftLength
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import GenerationSettings
from vtrim.decoding.ngram import NgramDrafter
from vtrim.decoding.protocol import Drafter
from vtrim.decoding.second_model import ModelDrafter
from vtrim.models.lean import LeanTarget, fast_target
from vtrim.models.skipping import without_layers
from vtrim.models.target import Target, load_target
from vtrim.vocab import DraftVocab

PROMPTS = {
    "stories260k": [[1, 403, 407], [1], [1, 300, 5, 77, 12, 450, 33], [1, 290], [1, 80, 81, 82]],
    "target_chain": [[0, 5], [7], [50, 3, 8], [9, 9, 9, 9], [2, 4]],
    "target_headdim": [[0, 5], [7], [50, 3, 8], [1, 2, 1, 2, 1], [40]],
    "target_softcap": [[0, 5], [7], list(range(40)) * 2, [3, 3], [60, 61, 60]],
}
STOP = {"stories260k": 2, "target_chain": 51, "target_headdim": 51, "target_softcap": 51}


def skipping(target: Target) -> Drafter:
    return ModelDrafter(without_layers(target, [1]), target)


def trimmed(target: Target) -> Drafter:
    vocab = DraftVocab.of(range(0, target.vocab_size, 3), target.vocab_size)
    return ModelDrafter(without_layers(target, [0, 2]), target, vocab)


def itself(target: Target) -> Drafter:
    return ModelDrafter(without_layers(target, []), target)


def unsure(target: Target) -> Drafter:
    return ModelDrafter(without_layers(target, [1]), target, min_confidence=0.3)


DRAFTERS: dict[str, Callable[[Target], Drafter]] = {
    "ngram": lambda target: NgramDrafter(target.device),
    "ngram, one token": lambda target: NgramDrafter(target.device, 1),
    "the target without a block": skipping,
    "a trimmed head": trimmed,
    "the target itself": itself,
    "a confidence stop": unsure,
}


def settings(name: str, **changes: Any) -> GenerationSettings:
    values: dict[str, Any] = {
        "max_new_tokens": 20,
        "stop_ids": frozenset({STOP[name]}),
        "temperature": 0.0,
        "num_draft_tokens": 4,
        "seed": 0,
    }
    return GenerationSettings(**(values | changes))


@pytest.fixture(scope="module")
def load(shared: Path) -> Callable[..., Target]:
    kept: dict[str, Target] = {}

    def one(name: str, *, lean: bool = False) -> Target:
        if name not in kept:
            place = "data/model" if name == "stories260k" else "inputs"
            folder = str(shared / place / name)
            kept[name] = load_target(folder, dtype=torch.float32, aux_layer_ids=())
        return fast_target(kept[name], lambda _: None) if lean else kept[name]

    return one


PAIRS = [("stories260k", drafter) for drafter in DRAFTERS] + [
    (name, drafter)
    for name in PROMPTS
    for drafter in ("ngram", "the target without a block")
    if name != "stories260k"
]


@pytest.mark.parametrize(("batch_size", "length"), [(1, 4), (4, 3)])
@pytest.mark.parametrize(("name", "drafter"), PAIRS)
def test_greedy_equals_plain(
    name: str, drafter: str, batch_size: int, length: int, load: Callable[..., Target]
) -> None:
    target, wanted = load(name), settings(name, num_draft_tokens=length)
    plain = [reply.tokens for reply in Engine(target).decode_many(PROMPTS[name], wanted, None)]
    engine = Engine(target, DRAFTERS[drafter](target))
    replies = engine.decode_many(
        PROMPTS[name], wanted, make_acceptor("greedy"), batch_size=batch_size
    )
    assert [reply.tokens for reply in replies] == plain
    assert sum(reply.off_argmax for reply in replies) == 0
    if drafter == "the target itself":
        assert all(reply.accepted == reply.drafted for reply in replies)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_greedy_equals_plain_with_lean_forwards(
    batch_size: int, load: Callable[..., Target]
) -> None:
    name = "stories260k"
    target = load(name, lean=True)
    assert isinstance(target, LeanTarget)
    plain = [Engine(target).decode_plain(ids, settings(name)).tokens for ids in PROMPTS[name]]
    for drafter in (skipping, trimmed):
        replies = Engine(target, drafter(target)).decode_many(
            PROMPTS[name], settings(name), make_acceptor("greedy"), batch_size=batch_size
        )
        assert [reply.tokens for reply in replies] == plain


@pytest.mark.parametrize("drafter", ["ngram", "the target without a block"])
def test_an_adaptive_length_changes_no_token(drafter: str, load: Callable[..., Target]) -> None:
    name = "stories260k"
    target = load(name)
    wanted = settings(name, max_new_tokens=40, num_draft_tokens=5)
    plain = [Engine(target).decode_plain(ids, wanted).tokens for ids in PROMPTS[name]]
    engine = Engine(target, DRAFTERS[drafter](target))
    chosen = settings(name, max_new_tokens=40, num_draft_tokens=5, adaptive=True)
    replies = engine.decode_many(PROMPTS[name], chosen, make_acceptor("greedy"))
    assert [reply.tokens for reply in replies] == plain
    assert len({drafted for reply in replies for drafted in reply.drafted}) > 1


def test_a_long_prompt_reaches_the_draft_model_in_pieces(load: Callable[..., Target]) -> None:
    name = "stories260k"
    target = load(name)
    prompt = [1, *(300 + 7 * i % 150 for i in range(220))]
    wanted = settings(name, max_new_tokens=20, stop_ids=frozenset())
    plain = Engine(target).decode_plain(prompt, wanted)
    engine = Engine(target, itself(target))
    engine.chunk = 70
    reply = engine.decode(prompt, wanted, make_acceptor("greedy"))
    assert reply.tokens == plain.tokens
    assert reply.accepted == reply.drafted


def test_the_shorter_context_of_both_models_counts(load: Callable[..., Target]) -> None:
    target, small = load("stories260k"), load("target_chain")
    assert Engine(target, ModelDrafter(small, target)).context_length == 128
    assert Engine(target, NgramDrafter(target.device)).context_length == 512


class Rule:
    """The greedy rule under an identity of its own."""

    name, lossless = "greedy", True

    def __init__(self) -> None:
        greedy = make_acceptor("greedy")
        self.begin, self.accept = greedy.begin, greedy.accept


def test_adaptive_lengths_outlive_turns_of_rules_but_not_a_long_sweep(
    load: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    class Counted(DraftLength):
        def __init__(self, most: int) -> None:
            made.append(most)
            super().__init__(most)

    monkeypatch.setattr("vtrim.decoding.engine.DraftLength", Counted)
    target = load("target_chain")
    engine = Engine(target, NgramDrafter(target.device))
    chosen = settings("target_chain", max_new_tokens=3, num_draft_tokens=2, adaptive=True)
    first, second = Rule(), Rule()
    for _ in range(3):
        for rule in (first, second):
            engine.decode([0, 5], chosen, rule)
    assert len(made) == 2
    swept = [Rule() for _ in range(30)]
    alive = [ref(rule) for rule in swept]
    while swept:
        engine.decode([0, 5], chosen, swept.pop())
    gc.collect()
    assert sum(rule() is not None for rule in alive) < 10
