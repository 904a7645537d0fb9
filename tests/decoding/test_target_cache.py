"""Buffers of the target's cache: where rows go, what is kept, what moves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig

from vtrim.decoding.cache import STEP, TargetCache
from vtrim.errors import InputError

CPU = torch.device("cpu")
CONFIG = LlamaConfig(num_hidden_layers=2, hidden_size=8, num_attention_heads=2, vocab_size=16)


def rows(numbers: list[list[int]]) -> Tensor:
    """[B, 1 head, T, 1] of these numbers."""
    return torch.tensor(numbers, dtype=torch.float32)[:, None, :, None]


def feed(cache: TargetCache, slots: range, numbers: list[list[int]]) -> list[list[float]]:
    """Writes rows into all layers; returns the keys that the last layer gives back."""
    cache.aim_at(slots, len(numbers[0]), CPU)
    for layer in cache.layers:
        keys, values = layer.update(rows(numbers), -rows(numbers))
        assert torch.equal(values, -keys)
    found: list[list[float]] = keys[:, 0, :, 0].tolist()
    return found


def held(cache: TargetCache, slot: int) -> list[float]:
    """The numbers that each layer keeps of a slot."""
    found = [layer.keys[slot, 0, : cache.lengths[slot], 0].tolist() for layer in cache.kept_layers]
    assert found[0] == found[1]
    return found[0]


def test_rows_of_one_slot_follow_each_other_and_roll_back_without_a_copy() -> None:
    cache = TargetCache(CONFIG, 1, 8)
    assert feed(cache, range(1), [[1, 2, 3]]) == [[1, 2, 3]]
    buffer = cache.kept_layers[0].keys.data_ptr()
    assert feed(cache, range(1), [[4, 5]]) == [[1, 2, 3, 4, 5]]
    cache.rollback(2)
    assert held(cache, 0) == [1, 2]
    assert cache.get_seq_length() == 2
    assert feed(cache, range(1), [[9]]) == [[1, 2, 9]]
    assert cache.kept_layers[0].keys.data_ptr() == buffer
    cache.reset()
    assert cache.lengths == [0]


def test_a_batch_writes_behind_the_length_of_each_slot() -> None:
    cache = TargetCache(CONFIG, 3, 8)
    feed(cache, range(1), [[1, 2, 3]])
    feed(cache, range(1, 2), [[5]])
    found = feed(cache, range(2), [[10, 11], [20, 21]])
    assert found == [[1, 2, 3, 10, 11], [5, 20, 21, 0, 0]]
    assert cache.lengths == [5, 3, 0]


@pytest.mark.parametrize("path", [(), (0,), (0, 1, 2), (1,), (0, 2, 3), (3,)])
def test_the_kept_path_of_a_tree_lies_side_by_side(path: tuple[int, ...]) -> None:
    cache = TargetCache(CONFIG, 2, 12)
    feed(cache, range(1), [[1, 2]])
    feed(cache, range(1, 2), [[7, 8, 9]])
    feed(cache, range(2), [[3, 10, 11, 12, 13], [4, 20, 21, 22, 23]])
    cache.keep(1, 4, path)  # 7 8 9, the last token 4, then the path
    assert held(cache, 1) == [7, 8, 9, 4, *(20 + node for node in path)]
    cache.keep(0, 3, path)
    assert held(cache, 0) == [1, 2, 3, *(10 + node for node in path)]


def test_a_moved_sequence_is_the_same_in_its_new_slot() -> None:
    cache = TargetCache(CONFIG, 2, 8)
    feed(cache, range(1), [[1, 2, 3, 4]])
    feed(cache, range(1, 2), [[7, 8]])
    cache.move(1, 0)
    assert held(cache, 0) == [7, 8]
    assert feed(cache, range(1), [[9]]) == [[7, 8, 9]]


def test_more_room_keeps_what_is_held_and_less_changes_nothing() -> None:
    cache = TargetCache(CONFIG, 1, 4)
    feed(cache, range(1), [[1, 2, 3]])
    cache.reserve(1, 3)
    assert (cache.slots, cache.capacity) == (1, 4)
    cache.reserve(3, 9)
    assert (cache.slots, cache.capacity) == (3, STEP)
    assert held(cache, 0) == [1, 2, 3]
    assert cache.kept_layers[1].values.shape == (3, 1, STEP, 1)
    assert feed(cache, range(2), [[4], [5]]) == [[1, 2, 3, 4], [5, 0, 0, 0]]


def test_columns_that_were_never_written_are_numbers() -> None:
    """A masked column still enters a product with weight 0."""
    cache = TargetCache(CONFIG, 2, 64)
    feed(cache, range(1), [[1] * 40])
    feed(cache, range(2), [[2], [3]])
    layer: Any = cache.kept_layers[0]
    assert bool(layer.keys.isfinite().all())
    assert bool(layer.values.isfinite().all())


def test_a_state_that_cannot_roll_back_is_refused() -> None:
    from transformers import Qwen3NextConfig

    with pytest.raises(InputError, match="roll back"):
        TargetCache(Qwen3NextConfig(num_hidden_layers=4), 1, 8)
