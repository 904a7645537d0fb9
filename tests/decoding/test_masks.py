"""Masks of trees and ragged batches against plain loops, and on models with windows and chunks."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.cache import TargetCache
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import GenerationSettings
from vtrim.decoding.mask import Reach, TreeMasks
from vtrim.decoding.protocol import Proposal
from vtrim.decoding.verify import check_trees
from vtrim.errors import InputError
from vtrim.models.target import Target

sys.path.insert(0, str(Path(__file__).parent))
from tree_oracle import TreeOracle

V = 40
SIZES: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
MOE = {"num_experts_per_tok": 2, "num_local_experts": 4}
MIXED = {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 4}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama, eager": ("Llama", {"attn_implementation": "eager"}),
    "mistral, one window": ("Mistral", {"sliding_window": 4}),
    "mixtral": ("Mixtral", {"num_local_experts": 4}),
    "qwen2, mixed": ("Qwen2", MIXED | {"use_sliding_window": True}),
    "qwen3, mixed, eager": (
        "Qwen3",
        MIXED | {"use_sliding_window": True, "head_dim": 16, "attn_implementation": "eager"},
    ),
    "gemma2, soft cap": ("Gemma2", {"head_dim": 16, "sliding_window": 4}),
    "gemma3": ("Gemma3Text", {"head_dim": 16, "sliding_window": 4}),
    "gpt-oss, sinks": ("GptOss", MOE | {"head_dim": 16, "sliding_window": 4}),
    "cohere2": ("Cohere2", {"sliding_window": 4}),
    "gpt2, learned positions": (
        "GPT2",
        {"n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 64},
    ),
}


@cache
def target_of(name: str) -> Target:
    family, changes = FAMILIES[name]
    values = SIZES | changes
    attention = values.pop("attn_implementation", None)
    if family == "GPT2":
        values = {"vocab_size": V, "eos_token_id": 2, "bos_token_id": None, **changes}
    config = getattr(transformers, f"{family}Config")(**values)
    torch.manual_seed(3)
    options = {} if attention is None else {"attn_implementation": attention}
    model = transformers.AutoModelForCausalLM.from_config(config, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return Target(model, name)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_trees_and_batches_give_plain_replies_on_every_kind_of_attention(name: str) -> None:
    target = target_of(name)
    check_trees(target)
    prompts = [[3, 1, 4, 1, 5, 9], [2], list(range(5, 22)), [8, 8]]
    chosen = GenerationSettings(
        max_new_tokens=20, stop_ids=frozenset(), temperature=0.0, num_draft_tokens=4, seed=0
    )
    plain = [Engine(target).decode_plain(ids, chosen).tokens for ids in prompts]
    replies = {i: [*ids, *plain[i]] for i, ids in enumerate(prompts)}
    for branches in (0, 4):
        engine = Engine(target, TreeOracle(replies, V, branches=branches))
        for batch_size in (1, 3):
            found = engine.decode_many(
                prompts, chosen, make_acceptor("greedy"), batch_size=batch_size
            )
            assert [reply.tokens for reply in found] == plain
            assert sum(sum(reply.accepted) for reply in found) > 10


def slow_mask(
    parents: list[int], length: int, width: int, columns: int, reach: Reach
) -> list[list[bool]]:
    """Row by row, column by column: who attends to whom."""

    def position(column: int) -> int:
        if column <= length:
            return column
        return position(length + 1 + parents[column - length - 1]) + 1

    def ancestors(row: int) -> set[int]:
        return {0} if row == 0 else {row} | ancestors(parents[row - 1] + 1)

    rows = []
    for row in range(width):
        line = []
        for column in range(columns):
            kept = column < length or (column - length) in ancestors(row)
            if kept and reach.window is not None:
                here, there = position(length + row), position(column)
                if reach.chunked:
                    kept = here // reach.window == there // reach.window
                else:
                    kept = here - there < reach.window
            line.append(kept)
        rows.append(line)
    return rows


def proposal(parents: list[int] | None, size: int) -> Proposal:
    tree = None if parents is None else tuple(parents)
    empty = torch.empty(size, 0)
    none = torch.empty(0, dtype=torch.long)
    return Proposal(torch.zeros(size, dtype=torch.long), None, empty, none, tree)


@pytest.mark.parametrize("name", ["llama", "mistral, one window", "gemma2, soft cap", "chunks"])
def test_masks_equal_plain_loops(name: str) -> None:
    if name == "chunks":
        config = transformers.Llama4TextConfig(
            num_hidden_layers=4, no_rope_layers=[1, 1, 1, 0], attention_chunk_size=5
        )
    else:
        config = target_of(name).config
    masks = TreeMasks(config, TargetCache(config, 3, 8), 64)
    trees = [[-1, -1, 0, 0, 2, 1], [-1, 0, 1], [-1, -1, -1, 2]]
    given = [proposal(trees[0], 6), proposal(None, 3), proposal(trees[2], 4)]
    lengths = [7, 2, 11]
    made, positions = masks.make(given, lengths, torch.device("cpu"))
    assert positions[0].tolist() == [7, 8, 8, 9, 9, 10, 9]
    assert positions[1, :4].tolist() == [2, 3, 4, 5]
    by_kind = made if isinstance(made, dict) else dict.fromkeys(masks.reaches, made)
    assert isinstance(made, dict) == (name in ("gemma2, soft cap", "chunks"))
    for kind, mask in by_kind.items():
        assert mask.shape == (3, 1, 7, 18)
        assert mask.any(-1).all(), "no row sees nothing"
        for own, parents, tree, length in zip(mask[:, 0], trees, given, lengths, strict=True):
            width = tree.size + 1
            columns = length + width
            wanted = slow_mask(parents, length, width, columns, masks.reaches[kind])
            assert own[:width, :columns].tolist() == wanted
            assert not own[:width, columns:].any()


def test_positions_of_padding_stay_inside_the_context() -> None:
    config = target_of("llama").config
    masks = TreeMasks(config, TargetCache(config, 2, 8), 64)
    _, positions = masks.make([proposal(None, 0), proposal(None, 5)], [63, 4], torch.device("cpu"))
    assert positions.tolist() == [[63] * 6, [4, 5, 6, 7, 8, 9]]


class Deaf(Target):
    """A target whose attention does not listen to masks."""

    def forward(self, input_ids: Tensor, **options: Any) -> Any:
        options["attention_mask"] = None
        return super().forward(input_ids, **options)


class Unmasked(Target):
    """A target whose attention breaks on masks of its own for each row."""

    def forward(self, input_ids: Tensor, **options: Any) -> Any:
        if options.get("attention_mask") is not None:
            raise ValueError("only padding masks are supported")
        return super().forward(input_ids, **options)


@pytest.mark.parametrize(("kind", "said"), [(Deaf, "eagle"), (Unmasked, "only padding masks")])
def test_a_target_that_takes_no_tree_mask_is_refused_for_trees_and_batches_only(
    kind: type[Target], said: str
) -> None:
    target = kind(target_of("llama").model, "the-target")
    chosen = GenerationSettings(
        max_new_tokens=8, stop_ids=frozenset(), temperature=0.0, num_draft_tokens=3, seed=0
    )
    prompts = [[3, 1, 4], [2, 7]]
    plain = [Engine(target).decode_plain(ids, chosen).tokens for ids in prompts]
    replies = {i: [*ids, *plain[i]] for i, ids in enumerate(prompts)}
    greedy = make_acceptor("greedy")
    chain = Engine(target, TreeOracle(replies, V, branches=0))
    assert [r.tokens for r in chain.decode_many(prompts, chosen, greedy)] == plain
    with pytest.raises(InputError, match=f"the-target.*mask.*{said}"):
        chain.decode_many(prompts, chosen, greedy, batch_size=2)
    tree = Engine(target, TreeOracle(replies, V, branches=4, miss=0.0))
    with pytest.raises(InputError, match="trees and batches need"):
        tree.decode_many(prompts, chosen, greedy)
