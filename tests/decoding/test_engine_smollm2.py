"""Identity with plain decoding on a real 135M chat model, in fp32."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.chain import ChainDrafter
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import GenerationSettings
from vtrim.decoding.protocol import Ask, Proposal
from vtrim.models.hub import load_tokenizer
from vtrim.models.layout import load_draft
from vtrim.models.lean import fast_target
from vtrim.models.smollm2 import smollm2_folder
from vtrim.models.target import Target, load_target

sys.path.insert(0, str(Path(__file__).parent))
from tree_oracle import TreeOracle

TOPICS = [
    "why bread rises", "a lighthouse in winter", "how to reverse a list in Python",
    "five rivers and their seas", "what a hash table is", "the rules of chess for a child",
    "a polite refusal of an invitation", "three uses of vinegar", "how vaccines work",
    "the plot of Hamlet in two sentences", "a haiku about rain", "binary search in C",
    "what inflation does to savings", "a recipe for pancakes", "the planets in order",
    "how to tie a bowline", "the difference between TCP and UDP", "a limerick about a cat",
    "why the sky is blue", "tips for a first job interview",
]  # fmt: skip
STOP = 2


@pytest.fixture(scope="module")
def target() -> Target:
    folder = smollm2_folder()
    if not (folder / "model.safetensors").exists():
        pytest.skip("the built-in target is not unpacked here (VTRIM_CACHE; run `vtrim demo`)")
    torch.set_num_threads(1)
    return load_target(str(folder), dtype=torch.float32)


class HalfRight(ChainDrafter):
    """Drafts from a known reply at every other place, its own tokens elsewhere."""

    def follow(self, whole: list[int]) -> None:
        self.whole, self.dice = whole, random.Random(0)

    def propose(
        self, asks: Sequence[Ask], num_draft_tokens: int, *, temperature: float, seed: int
    ) -> list[Proposal]:
        proposals = super().propose(asks, num_draft_tokens, temperature=temperature, seed=seed)
        return [self._half_right(ask, own) for ask, own in zip(asks, proposals, strict=True)]

    def _half_right(self, ask: Ask, own: Proposal) -> Proposal:
        start = len(ask.tokens)
        known = self.whole[start : start + own.size]
        chain = list(own.ids)
        for place, token in enumerate(known):
            if self.dice.random() < 0.7:
                chain[place] = token
        return Proposal(torch.tensor(chain), None, own.log_q_soft, own.vocab_ids)


@pytest.mark.slow
def test_20_greedy_replies_equal_plain_decoding_for_draft_lengths_1_3_5_8(
    target: Target, random_draft: Callable[..., Path]
) -> None:
    tokenizer = load_tokenizer(target.name)
    draft = load_draft(random_draft(Path(target.name), ids=range(512))).model
    drafter = HalfRight(draft, target.embedding)
    engine, acceptor = Engine(target, drafter), make_acceptor("greedy")
    accepted = 0
    for topic in TOPICS:
        chat = [{"role": "user", "content": f"Write about {topic}."}]
        prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        settings = [
            GenerationSettings(
                max_new_tokens=24,
                stop_ids=frozenset({STOP}),
                temperature=0.0,
                num_draft_tokens=length,
                seed=0,
            )
            for length in (1, 3, 5, 8)
        ]
        plain = engine.decode_plain(prompt, settings[0])
        drafter.follow([*prompt, *plain.tokens])
        for chosen in settings:
            reply = engine.decode(prompt, chosen, acceptor)
            assert reply.tokens == plain.tokens
            accepted += sum(reply.accepted)
    assert accepted > 500


@pytest.mark.slow
def test_trees_and_batches_of_four_equal_plain_decoding(target: Target) -> None:
    tokenizer = load_tokenizer(target.name)
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": f"Write about {topic}."}],
            add_generation_prompt=True,
            return_dict=False,
        )
        for topic in TOPICS[:5]
    ]
    settings = GenerationSettings(
        max_new_tokens=16,
        stop_ids=frozenset({STOP}),
        temperature=0.0,
        num_draft_tokens=5,
        seed=0,
    )
    plain = [Engine(target).decode_plain(ids, settings).tokens for ids in prompts]
    replies = {i: [*ids, *plain[i]] for i, ids in enumerate(prompts)}
    for model in (target, fast_target(target, print)):
        for branches in (0, 4):
            engine = Engine(model, TreeOracle(replies, target.vocab_size, branches=branches))
            for batch_size in (1, 4):
                found = engine.decode_many(
                    prompts, settings, make_acceptor("greedy"), batch_size=batch_size
                )
                assert [reply.tokens for reply in found] == plain
                assert sum(sum(reply.accepted) for reply in found) > 20
