"""Many sequences in one engine: trees and chains, ragged acceptance, prompts that wait."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.cache import TargetCache
from vtrim.decoding.chain import ChainDrafter
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import Generation, GenerationSettings
from vtrim.decoding.ngram import NgramDrafter
from vtrim.decoding.protocol import Drafter
from vtrim.decoding.rounds import Rounds
from vtrim.errors import OptionError
from vtrim.models.layout import load_draft
from vtrim.models.target import Target, load_target

sys.path.insert(0, str(Path(__file__).parent))
from tree_oracle import TreeOracle

NAMES = ("stories260k", "target_chain", "target_headdim", "target_softcap")
PROMPTS = {
    "stories260k": [[1, 403, 407], [1], [1, 300, 5, 77, 12, 450, 33], [9] * 20, [7, 8], [2, 1]],
    "target_chain": [[0, 5], [7], [50, 3, 8], [9] * 20, [1, 2], [44, 2, 6, 4]],
    "target_headdim": [[0, 5], [7], [50, 3, 8], [9] * 20, [1, 2], [44, 2, 6, 4]],
    "target_softcap": [[0, 5], [7], list(range(40)) * 2, [9] * 20, [1, 2], [44, 2, 6, 4]],
}
SHAPES = {"chain": 0, "tree": 4}


def settings(**changes: Any) -> GenerationSettings:
    values: dict[str, Any] = {
        "max_new_tokens": 24,
        "stop_ids": frozenset(),
        "temperature": 0.0,
        "num_draft_tokens": 4,
        "seed": 0,
    }
    return GenerationSettings(**(values | changes))


@cache
def target_of(folder: Path) -> Target:
    return load_target(str(folder), dtype=torch.float32)


@cache
def plain_of(folder: Path, name: str) -> list[Generation]:
    engine = Engine(target_of(folder))
    return [engine.decode_plain(ids, settings()) for ids in PROMPTS[name]]


def folder_of(shared: Path, name: str) -> Path:
    return shared / ("data/model" if name == "stories260k" else "inputs") / name


def oracle_of(folder: Path, name: str, shape: str, miss: float = 0.25) -> TreeOracle:
    replies = {
        index: [*ids, *reply.tokens]
        for index, (ids, reply) in enumerate(
            zip(PROMPTS[name], plain_of(folder, name), strict=True)
        )
    }
    rows = target_of(folder).vocab_size
    return TreeOracle(replies, rows, branches=SHAPES[shape], miss=miss)


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("name", NAMES)
def test_greedy_equals_plain_for_chains_and_trees_in_any_batch(
    name: str, shape: str, batch_size: int, shared: Path
) -> None:
    folder = folder_of(shared, name)
    plain = plain_of(folder, name)
    engine = Engine(target_of(folder), oracle_of(folder, name, shape))
    for depth in (1, 4, 7):
        chosen = settings(num_draft_tokens=depth)
        replies = engine.decode_many(
            PROMPTS[name], chosen, make_acceptor("greedy"), batch_size=batch_size
        )
        assert [reply.tokens for reply in replies] == [reply.tokens for reply in plain]
        assert all(reply.off_argmax == 0 for reply in replies)
        assert sum(sum(reply.accepted) for reply in replies) > 20
        for reply, alone in zip(replies, plain, strict=True):
            assert reply.log_prob == pytest.approx(alone.log_prob, abs=1e-3)
            assert reply.rounds + sum(reply.accepted) == reply.emitted == alone.emitted


@pytest.mark.parametrize("name", NAMES)
def test_plain_decoding_of_a_batch_gives_each_reply_alone(name: str, shared: Path) -> None:
    folder = folder_of(shared, name)
    replies = Engine(target_of(folder)).decode_many(PROMPTS[name], settings(), None, batch_size=4)
    assert [r.tokens for r in replies] == [r.tokens for r in plain_of(folder, name)]


def drafters(folder: Path, random_draft: Callable[..., Path]) -> Iterator[Drafter]:
    target = target_of(folder)
    draft = load_draft(random_draft(folder, ids=range(0, target.vocab_size, 3), seed=1)).model
    yield ChainDrafter(draft, target.embedding)
    yield NgramDrafter(target.device)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
@pytest.mark.parametrize("name", ["stories260k", "target_softcap"])
def test_a_reply_does_not_depend_on_its_neighbours(
    name: str, temperature: float, shared: Path, random_draft: Callable[..., Path]
) -> None:
    folder = folder_of(shared, name)
    chosen = settings(temperature=temperature, max_new_tokens=16)
    for drafter in drafters(folder, random_draft):
        engine = Engine(target_of(folder), drafter)
        acceptor = make_acceptor("rejection", temperature=temperature)
        alone, together, some = (
            engine.decode_many(PROMPTS[name][first:], chosen, acceptor, batch_size=size,
                               first_prompt=first)
            for size, first in ((1, 0), (4, 0), (3, 2))
        )  # fmt: skip
        assert [r.tokens for r in alone] == [r.tokens for r in together]
        assert [r.tokens for r in alone[2:]] == [r.tokens for r in some]
        assert [r.accepted for r in alone] == [r.accepted for r in together]


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("name", NAMES)
def test_after_each_round_the_cache_equals_a_fresh_prefill(
    name: str, shape: str, batch_size: int, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(shared, name)
    target, compared = target_of(folder), 0
    one_round = Rounds.round

    def checked(rounds: Rounds) -> None:
        nonlocal compared
        one_round(rounds)
        cache = rounds.verifier.cache
        for row, sequence in enumerate(rounds.live):
            length = cache.lengths[row]
            assert length == len(sequence.tokens) - 1
            fresh = TargetCache(target.config, 1, length)
            target.forward(torch.tensor([sequence.tokens[:length]]), cache=fresh)
            for ours, new in zip(cache.kept_layers, fresh.kept_layers, strict=True):
                for here, there in ((ours.keys, new.keys), (ours.values, new.values)):
                    torch.testing.assert_close(
                        here[row, :, :length], there[0], rtol=1e-5, atol=1e-5
                    )
            compared += 1

    monkeypatch.setattr(Rounds, "round", checked)
    engine = Engine(target, oracle_of(folder, name, shape))
    chosen = settings(max_new_tokens=16)
    engine.decode_many(PROMPTS[name], chosen, make_acceptor("greedy"), batch_size=batch_size)
    assert compared > 20


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_prompts_in_chunks_give_the_same_replies(shape: str, shared: Path) -> None:
    for name in ("stories260k", "target_softcap"):
        folder = folder_of(shared, name)
        engine = Engine(target_of(folder), oracle_of(folder, name, shape))
        for engine.chunk in (1, 2, 7):
            replies = engine.decode_many(
                PROMPTS[name], settings(), make_acceptor("greedy"), batch_size=3
            )
            assert [r.tokens for r in replies] == [r.tokens for r in plain_of(folder, name)]


class Narrow(Target):
    """A target that notes the rows of each forward."""

    widths: tuple[int, ...] = ()

    def forward(self, input_ids: torch.Tensor, **options: Any) -> Any:
        self.widths += (input_ids.shape[1],)
        return super().forward(input_ids, **options)


def test_no_forward_has_more_rows_than_a_chunk(shared: Path) -> None:
    target = Narrow(target_of(folder_of(shared, "target_chain")).model, "narrow")
    engine = Engine(target)
    engine.chunk = 16
    engine.decode_plain([5] * 83, settings(max_new_tokens=3))
    assert target.widths == (16, 16, 16, 16, 16, 3, 1, 1)


def test_a_draft_takes_in_a_prompt_in_chunks_as_in_one_piece(
    shared: Path, random_draft: Callable[..., Path]
) -> None:
    folder = folder_of(shared, "stories260k")
    for drafter in drafters(folder, random_draft):
        engine, acceptor = Engine(target_of(folder), drafter), make_acceptor("greedy")
        whole = engine.decode_many(PROMPTS["stories260k"], settings(), acceptor, batch_size=2)
        for engine.chunk in (1, 2, 7):
            parts = engine.decode_many(PROMPTS["stories260k"], settings(), acceptor, batch_size=2)
            assert [r.tokens for r in parts] == [r.tokens for r in whole]
            assert [r.accepted for r in parts] == [r.accepted for r in whole]


def test_new_tokens_are_told_once_a_round_with_their_prompt(shared: Path) -> None:
    folder, told = folder_of(shared, "target_chain"), dict[int, list[list[int]]]()
    oracle = oracle_of(folder, "target_chain", "tree")
    oracle.replies = {index + 5: whole for index, whole in oracle.replies.items()}
    engine = Engine(target_of(folder), oracle)
    replies = engine.decode_many(
        PROMPTS["target_chain"], settings(), make_acceptor("greedy"), batch_size=4, first_prompt=5,
        on_tokens=lambda prompt, new: told.setdefault(prompt, []).append(new),
    )  # fmt: skip
    assert sorted(told) == list(range(5, 5 + len(replies)))
    for prompt, reply in enumerate(replies, 5):
        assert [t for new in told[prompt] for t in new] == list(reply.tokens)
        assert [len(new) - 1 for new in told[prompt][1:]] == list(reply.accepted)


def test_budgets_and_stops_are_exact_for_each_sequence_of_a_batch(shared: Path) -> None:
    folder = folder_of(shared, "stories260k")
    plain = plain_of(folder, "stories260k")
    for shape in SHAPES:
        engine = Engine(target_of(folder), oracle_of(folder, "stories260k", shape))
        for budget in range(1, 9):
            replies = engine.decode_many(
                PROMPTS["stories260k"], settings(max_new_tokens=budget),
                make_acceptor("greedy"), batch_size=4,
            )  # fmt: skip
            assert [r.tokens for r in replies] == [r.tokens[:budget] for r in plain]
            assert {r.finish_reason for r in replies} == {"length"}
        stop = plain[0].tokens[9]
        replies = engine.decode_many(
            PROMPTS["stories260k"], settings(stop_ids=frozenset({stop})),
            make_acceptor("greedy"), batch_size=4,
        )  # fmt: skip
        for reply, alone in zip(replies, plain, strict=True):
            ends = alone.tokens.index(stop) + 1 if stop in alone.tokens else len(alone.tokens)
            assert reply.tokens == alone.tokens[:ends]
            assert reply.finish_reason == ("stop" if stop in alone.tokens else "length")


def test_a_trees_rounds_report_depth_and_nodes_apart(shared: Path) -> None:
    folder = folder_of(shared, "target_chain")
    engine = Engine(target_of(folder), oracle_of(folder, "target_chain", "tree", miss=0.0))
    reply = engine.decode(PROMPTS["target_chain"][0], settings(), make_acceptor("greedy"))
    assert reply.drafted == reply.accepted  # the right token is in every level
    assert set(reply.drafted) <= {0, 1, 2, 3, 4}
    assert all(nodes >= depth for nodes, depth in zip(reply.nodes, reply.drafted, strict=True))
    assert sum(reply.nodes) > sum(reply.drafted)


def test_seconds_of_a_batch_add_up_to_the_rounds(shared: Path) -> None:
    folder = folder_of(shared, "target_chain")
    engine = Engine(target_of(folder), oracle_of(folder, "target_chain", "chain"))
    replies = engine.decode_many(
        PROMPTS["target_chain"], settings(), make_acceptor("greedy"), batch_size=4
    )
    phases = ["prefill", "draft", "verify", "accept", "other"]
    assert all(list(reply.seconds) == phases for reply in replies)
    assert all(value >= 0 for reply in replies for value in reply.seconds.values())


def test_an_adaptive_length_changes_no_greedy_reply(shared: Path) -> None:
    folder = folder_of(shared, "target_chain")
    for batch_size in (1, 4):
        engine = Engine(target_of(folder), oracle_of(folder, "target_chain", "chain"))
        acceptor = make_acceptor("greedy")
        for _ in range(2):
            replies = engine.decode_many(
                PROMPTS["target_chain"], settings(adaptive=True), acceptor, batch_size=batch_size
            )
            plain = plain_of(folder, "target_chain")
            assert [r.tokens for r in replies] == [r.tokens for r in plain]
        drafted = {depth for reply in replies for depth in reply.drafted}
        assert drafted <= {0, 1, 2, 3, 4}


def test_a_batch_of_none_is_refused(shared: Path) -> None:
    engine = Engine(target_of(folder_of(shared, "target_chain")))
    with pytest.raises(OptionError, match="--batch-size 0"):
        engine.decode_many([[1]], settings(), None, batch_size=0)
    assert engine.decode_many([], settings(), None, batch_size=2) == []
