"""The bookkeeping of CUDA graphs, with a capture that runs the same function on the same tensors.

(The graphs themselves need a device.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from vtrim.decoding.verify import check_trees
from vtrim.models.lean import LeanTarget
from vtrim.models.lean_check import difference
from vtrim.models.lean_cuda import MAX_ROWS, MAX_SIZES, SIGHTS, Graphs
from vtrim.models.target import Target, TargetStates

Outputs = tuple[Tensor, ...]


class Recorder:
    """A capture that counts, and whose replay writes the tensors that were returned first."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, run: Callable[[], Outputs]) -> tuple[Callable[[], None], Outputs]:
        self.count += 1
        outputs = tuple(torch.full_like(t, float("nan")) for t in run())

        def replay() -> None:
            for mine, fresh in zip(outputs, run(), strict=True):
                mine.copy_(fresh)

        return replay, outputs


def add(index: int, x: Tensor, context: Tensor | None, *rest: Tensor) -> Outputs:
    """A step: x + index + what came in."""
    return (x + index + sum(rest) + (0 if context is None else context),)


def tiny() -> tuple[Target, LeanTarget, Recorder]:
    """A target, its lean forward through a recorder, and the recorder."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 7}
    config = LlamaConfig(vocab_size=40, num_attention_heads=4, num_key_value_heads=2, **sizes)
    target = Target(LlamaForCausalLM(config), "tiny")
    lean, recorder = LeanTarget(target, pack=False), Recorder()
    lean._step = Graphs(lean._between, recorder)
    return target, lean, recorder


def behind(lean: LeanTarget, ids: list[int]) -> TargetStates:
    """The states of ``ids`` behind a cache of two tokens."""
    cache = DynamicCache(config=lean.config)
    lean.forward(torch.tensor([[1, 2]]), cache=cache)
    return lean.forward(torch.tensor([ids]), cache=cache)


def test_every_block_of_a_size_is_recorded_once_and_replayed_with_new_numbers() -> None:
    recorder = Recorder()
    graphs = Graphs(add, recorder)
    for value in (1.0, 7.0, 5.0, 2.0):
        x, rest = torch.full((1, 2, 3), value), torch.full((1, 2, 1), 10 * value)
        (x,) = graphs(0, x, None, rest)
        (x,) = graphs(1, x, torch.full((1, 2, 3), 100 * value), rest)
        (x,) = graphs(2, x, torch.full((1, 2, 3), 1000 * value), rest)
        assert torch.equal(x, torch.full((1, 2, 3), value * (1 + 30 + 100 + 1000) + 3))
    assert recorder.count == 3


def test_long_inputs_and_sizes_beyond_the_table_run_as_they_are() -> None:
    recorder = Recorder()
    graphs = Graphs(add, recorder)
    graphs(0, torch.zeros(1, MAX_ROWS + 1, 2), None)
    assert recorder.count == 0
    for rows in [*range(1, MAX_SIZES + 2)] * SIGHTS:
        (found,) = graphs(0, torch.ones(1, rows, 2), None)
        assert torch.equal(found, torch.ones(1, rows, 2))
    assert recorder.count == MAX_SIZES


def test_sizes_that_come_once_leave_room_for_those_that_come_again() -> None:
    recorder = Recorder()
    graphs = Graphs(add, recorder)
    once = range(2, MAX_ROWS + 1)
    for rows in once:
        x = torch.ones(1, rows, 2)
        for index in range(3):
            (x,) = graphs(index, x, None)
        assert torch.equal(x, torch.full((1, rows, 2), 4.0))
    assert len(once) > MAX_SIZES
    assert recorder.count == 0
    for _ in range(SIGHTS):
        graphs(0, torch.ones(1, 1, 2), None)
    assert recorder.count == 1


def test_prompts_are_not_recorded_whatever_their_length_and_however_often() -> None:
    _, lean, recorder = tiny()
    for _ in range(SIGHTS + 1):
        lean.forward(torch.tensor([[3, 4, 5]]))
        lean.forward(torch.tensor([[3, 4, 5]]), cache=DynamicCache(config=lean.config))
    assert recorder.count == 0
    for _ in range(SIGHTS):
        behind(lean, [3, 4, 5])
    assert recorder.count == lean.num_layers + 1


def test_what_was_recorded_at_load_serves_outside_of_inference_mode_and_within() -> None:
    target, lean, recorder = tiny()
    with torch.inference_mode():
        for _ in range(SIGHTS):
            behind(lean, [3])
    recorded = recorder.count
    assert recorded > 0
    expected = target.forward(torch.tensor([[1, 2, 7]])).hidden[:, 2:]
    outside = behind(lean, [7]).hidden
    with torch.inference_mode():
        within = behind(lean, [7]).hidden
    assert recorder.count == recorded
    for found in (outside, within):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_whole_forward_through_replays_gives_the_same_states() -> None:
    target, lean, recorder = tiny()
    for _ in range(SIGHTS):
        assert difference(target, lean) is None
    for _ in range(SIGHTS):
        first = behind(lean, [3, 4])
    kept = first.hidden.clone(), first.aux.clone()
    recorded = recorder.count
    assert recorded == 4 * (lean.num_layers + 1)  # the proof's 1, 3 and 4 rows, and these 2
    behind(lean, [9, 8])
    assert recorder.count == recorded
    assert torch.equal(first.hidden, kept[0])
    assert torch.equal(first.aux, kept[1])


def test_a_target_whose_graphs_were_recorded_at_load_is_known_to_take_trees() -> None:
    target, lean, _ = tiny()
    for _ in range(SIGHTS):
        assert difference(target, lean) is None
    check_trees(lean)
