"""Where a reply ends: stop tokens, and texts exact to the token that completes them."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import GenerationSettings
from vtrim.decoding.stops import Stops
from vtrim.errors import OptionError
from vtrim.models.hub import load_tokenizer
from vtrim.models.target import Target, load_target

sys.path.insert(0, str(Path(__file__).parent))
from tree_oracle import TreeOracle


class Letters:
    """A tokenizer of bytes: id b is byte b; ids from 256 on are whole texts."""

    texts = ("<|end|>", "", " stop", "ping")

    def decode(self, ids: list[int], **options: Any) -> str:
        assert options == {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        parts = [bytes([i]) if i < 256 else self.texts[i - 256].encode() for i in ids]
        return b"".join(parts).decode(errors="replace")


def ids_of(text: str) -> list[int]:
    return list(text.encode())


@pytest.mark.parametrize(
    ("before", "new", "strings", "index"),
    [
        ("", "a stop b", ["stop"], 5),
        ("a st", "op stop", ["stop"], 1),
        ("a st", "op stop", ["stop", "o"], 0),
        ("", "nothing here", ["stop"], None),
        ("the bill: 5 ", "€ and", ["€ "], 3),  # three bytes of one character, then a space
        ("é" * 40, "é€", ["é€"], 4),
        ("x" * 40 + "sto", "p", ["x" * 3 + "stop"], 0),
    ],
)
def test_the_first_text_that_is_complete_ends_the_reply(
    before: str, new: str, strings: list[str], index: int | None
) -> None:
    prompt = ids_of("stop, says the prompt €")
    tokens = prompt + ids_of(before)
    stops = Stops(frozenset(), strings, Letters())
    assert stops.first(tokens, len(prompt), ids_of(new)) == index


def test_special_tokens_and_tokens_without_text_count_as_what_they_are() -> None:
    stops = Stops(frozenset(), ["<|end|>", "stopping"], Letters())
    assert stops.first([], 0, [65, 256, 65]) == 1
    assert stops.first([], 0, [258, 257, 257, 259, 65]) == 3


def test_a_text_of_the_prompt_ends_nothing() -> None:
    prompt = ids_of("sto")
    assert Stops(frozenset(), ["stop"], Letters()).first(prompt, 3, ids_of("p")) is None


def test_a_stop_token_before_a_text_wins() -> None:
    stops = Stops(frozenset({10}), ["stop"], Letters())
    assert stops.first([], 0, [*ids_of("st"), 10, *ids_of("op")]) == 2
    assert stops.first([], 0, ids_of("stop\n")) == 3


def test_texts_need_a_tokenizer_and_must_not_be_empty() -> None:
    with pytest.raises(OptionError, match="tokenizer"):
        Stops(frozenset(), ["stop"], None)
    with pytest.raises(OptionError, match="empty stop string"):
        Stops(frozenset(), [""], Letters())


@cache
def stories(folder: Path) -> tuple[Target, Any]:
    return load_target(str(folder), dtype=torch.float32), load_tokenizer(str(folder))


@pytest.mark.parametrize("branches", [0, 4])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_reply_ends_with_the_token_that_completes_a_text_inside_a_block(
    branches: int, batch_size: int, data: Path
) -> None:
    target, words = stories(data / "model" / "stories260k")
    prompts = [[1, 403, 407], [1], [1, 300, 5, 77, 12, 450, 33]]
    base = GenerationSettings(
        max_new_tokens=40, stop_ids=frozenset(), temperature=0.0, num_draft_tokens=6, seed=0
    )
    plain = [Engine(target).decode_plain(ids, base).tokens for ids in prompts]
    replies = {i: [*ids, *plain[i]] for i, ids in enumerate(prompts)}
    whole = words.decode(list(plain[0]))
    for start in (5, 18, 31):
        text = whole[start : start + 4]
        chosen = GenerationSettings(**{**vars(base), "stop_strings": (text,)})
        oracle = TreeOracle(replies, target.vocab_size, branches=branches, miss=0.1)
        engine = Engine(target, oracle, words)
        found = engine.decode_many(prompts, chosen, make_acceptor("greedy"), batch_size=batch_size)
        for reply, tokens in zip(found, plain, strict=True):
            ends = [n for n in range(1, 41) if text in words.decode(list(tokens[:n]))]
            assert reply.tokens == tokens[: min(ends, default=40)]
            assert reply.finish_reason == ("stop" if ends else "length")
            assert reply.rounds + sum(reply.accepted) >= reply.emitted
        assert found[0].finish_reason == "stop"
