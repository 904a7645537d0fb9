"""The target's keys and values for many sequences in buffers of fixed length.

Each live sequence has a slot and a length; a forward writes its rows behind that length. What a
round rejects is forgotten by setting the length back, and the accepted path of a tree is gathered
in place. Nothing is computed twice, and the buffers are never joined to anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from vtrim.errors import InputError

# Layers that transformers keeps by token position.
# (A window is kept whole here and masked by the model: cut to size, it could not roll back.)
_BY_POSITION = ("DynamicLayer", "DynamicSlidingWindowLayer")
_STATELESS = "DummyLayer"  # shares another layer's keys, or has no attention
STEP = 128
"""Columns come in multiples of it, lest wide trees move a cache by a few columns every round."""


@dataclass
class _Aim:
    """Where the rows of the next forward go, for all layers at once.

    lengths: tokens kept in each slot; slots: those that the forward's batch rows belong to; places:
    ([B, 1], [B, T]) slot and column of each row, None where one slot is filled from its length on.
    """

    lengths: list[int]
    slots: range = range(1)
    places: tuple[Tensor, Tensor] | None = None


class PositionLayer(CacheLayerMixin):
    """Keys and values of one block, [slots, heads, capacity, size] each.

    window: positions that its attention reaches back, or the size of its chunks; None: all.
    """

    keys: Any  # buffers once initialised
    values: Any

    def __init__(self, aim: _Aim, capacity: int, window: int | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.aim = aim
        self.capacity = capacity
        self.window = window
        self.is_sliding = window is not None
        self.is_last = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocates; zeros, because what a mask hides still enters a product."""
        slots = len(self.aim.lengths)
        self.keys, self.values = (
            x.new_zeros(slots, x.shape[1], self.capacity, x.shape[3])
            for x in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Writes T rows of each aimed slot; returns these slots' rows up to the last one written.

        key_states, value_states: [B, heads, T, size] -> [B, heads, S, size] each.
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        aim, width = self.aim, key_states.shape[2]
        slots = slice(aim.slots.start, aim.slots.stop)
        end = max(aim.lengths[slots]) + width
        if aim.places is None:
            self.keys[slots, :, end - width : end] = key_states
            self.values[slots, :, end - width : end] = value_states
        else:
            rows, columns = aim.places
            self.keys[rows, :, columns] = key_states.transpose(1, 2)
            self.values[rows, :, columns] = value_states.transpose(1, 2)
        if self.is_last:
            for slot in aim.slots:
                aim.lengths[slot] += width
        return self.keys[slots, :, :end], self.values[slots, :, :end]

    def resize(self, slots: int, capacity: int, used: int) -> None:
        """Moves the first ``used`` columns into larger buffers."""
        self.capacity = capacity
        for name in ("keys", "values"):
            if self.is_initialized:
                old: Tensor = getattr(self, name)
                new = old.new_zeros(slots, old.shape[1], capacity, old.shape[3])
                new[: old.shape[0], :, :used] = old[:, :, :used]
                setattr(self, name, new)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Columns that a mask must cover, and the first of them."""
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens kept in the aimed slot; of several, the most."""
        return max(self.aim.lengths[self.aim.slots.start : self.aim.slots.stop])

    def get_max_length(self) -> int:
        """Columns of the buffers."""
        return self.capacity

    get_max_cache_shape = get_max_length  # its name before transformers 5.20


class TargetCache(Cache):
    """Room for ``slots`` sequences of at most ``capacity`` tokens; allocated at the first forward.

    Raises:
        InputError: the model has a layer whose state is not keys and values by position.
    """

    def __init__(
        self, config: Any, slots: int, capacity: int, *, whose: str = "the target"
    ) -> None:
        """whose: the model, as a refusal names it."""
        self.lengths = [0] * slots
        self.aim = _Aim(self.lengths)
        layers = [
            _position_layer(layer, self.aim, capacity, whose)
            for layer in DynamicCache(config=config).layers
        ]
        super().__init__(layers=layers)
        self.kept_layers = [layer for layer in layers if isinstance(layer, PositionLayer)]
        self.kept_layers[-1].is_last = True
        self.capacity = capacity

    @property
    def slots(self) -> int:
        """Number of sequences there is room for."""
        return len(self.lengths)

    def reserve(self, slots: int, capacity: int) -> None:
        """Makes room, moving what is kept; buffers never shrink."""
        if slots <= self.slots and capacity <= self.capacity:
            return
        slots, capacity = max(slots, self.slots), max(capacity, self.capacity)
        capacity = -(-capacity // STEP) * STEP
        used = max(self.lengths)
        for layer in self.kept_layers:
            layer.resize(slots, capacity, used)
        self.lengths += [0] * (slots - self.slots)
        self.capacity = capacity

    def reset(self) -> None:
        """Forgets every token; no buffer is touched."""
        self.lengths[:] = [0] * self.slots

    def aim_at(self, slots: range, width: int, device: torch.device) -> None:
        """Says where the next forward's rows go: ``width`` of them behind each slot's length."""
        self.aim.slots = slots
        self.aim.places = None
        if len(slots) > 1:
            starts = torch.tensor([self.lengths[slot] for slot in slots], device=device)
            rows = torch.arange(slots.start, slots.stop, device=device)[:, None]
            self.aim.places = rows, starts[:, None] + torch.arange(width, device=device)

    def rollback(self, length: int, slot: int = 0) -> None:
        """Forgets every token of a slot from position ``length`` on; no buffer is touched."""
        self.lengths[slot] = min(self.lengths[slot], length)

    def keep(self, slot: int, length: int, path: Sequence[int]) -> None:
        """Keeps some of the rows behind ``length``: those of ``path``, ascending, side by side."""
        self.lengths[slot] = length + len(path)
        if list(path) == list(range(len(path))):
            return
        chosen = torch.tensor(path, device=self.kept_layers[0].keys.device) + length
        for layer in self.kept_layers:
            for rows in (layer.keys[slot], layer.values[slot]):
                rows[:, length : length + len(path)] = rows[:, chosen]

    def move(self, source: int, slot: int) -> None:
        """Puts the tokens of one slot into another."""
        length = self.lengths[slot] = self.lengths[source]
        for layer in self.kept_layers:
            for rows in (layer.keys, layer.values):
                rows[slot, :, :length] = rows[source, :, :length]


def _position_layer(layer: Any, aim: _Aim, capacity: int, whose: str) -> Any:
    name = type(layer).__name__
    if name == _STATELESS:
        return layer
    if name not in _BY_POSITION:
        raise InputError(
            f"{whose} has a layer whose state cannot roll back ({name}); speculative decoding "
            "needs attention layers only."
        )
    window = getattr(layer, "sliding_window", None)
    return PositionLayer(aim, capacity, window)
