"""Key/value caches of fixed length that roll back by setting a number.

The rollback after a rejected draft is the only mutable state of decoding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from vtrim.errors import InputError
from vtrim.shape import DraftShape

# Layers that transformers keeps by token position, and whether they attend through a window.
# (A window is kept whole here and masked by the model: cut to size, it could not roll back.)
_BY_POSITION = {"DynamicLayer": False, "DynamicSlidingWindowLayer": True}
_STATELESS = "DummyLayer"  # shares another layer's keys, or has no attention


class _Rows:
    """Two buffers [1, heads, capacity, size] that are filled from any row on."""

    def __init__(self, capacity: int, keys: Tensor, values: Tensor) -> None:
        self.capacity = capacity
        self.keys = self._buffer(keys)
        self.values = self._buffer(values)

    def _buffer(self, like: Tensor) -> Tensor:
        heads, size = like.shape[1], like.shape[-1]
        return torch.empty(1, heads, self.capacity, size, dtype=like.dtype, device=like.device)

    def write(self, start: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Puts [1, heads, T, size] at rows start..start+T-1; returns all rows up to there."""
        end = start + keys.shape[2]
        self.keys[:, :, start:end] = keys
        self.values[:, :, start:end] = values
        return self.keys[:, :, :end], self.values[:, :, :end]


class _PositionLayer(CacheLayerMixin):
    """One block of the target's cache behind transformers' layer interface."""

    is_croppable = True

    def __init__(self, capacity: int, *, is_sliding: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.capacity = capacity
        self.is_sliding = is_sliding
        self.length = 0
        self._rows: _Rows | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self._allocate(key_states, value_states)

    def _allocate(self, keys: Tensor, values: Tensor) -> _Rows:
        """Buffers of the first keys' heads, size, dtype and device."""
        self._rows = rows = _Rows(self.capacity, keys, values)
        self.keys, self.values = rows.keys, rows.values
        self.is_initialized = True
        return rows

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        rows = self._rows or self._allocate(key_states, value_states)
        start, self.length = self.length, self.length + key_states.shape[2]
        return rows.write(start, key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.capacity

    get_max_cache_shape = get_max_length  # its name before transformers 5.20

    def crop(self, tokens_to_remove: int) -> None:
        self.length -= abs(tokens_to_remove)


class TargetCache(Cache):
    """The target's keys and values for one sequence of at most ``capacity`` tokens."""

    def __init__(self, config: Any, capacity: int) -> None:
        layers = [_position_layer(layer, capacity) for layer in DynamicCache(config=config).layers]
        super().__init__(layers=layers)
        self.capacity = capacity

    @property
    def length(self) -> int:
        """Number of tokens whose keys and values are kept."""
        return max(getattr(layer, "length", 0) for layer in self.layers)

    def rollback(self, length: int) -> None:
        """Forgets every token from position ``length`` on, without touching the buffers."""
        for layer in self.layers:
            if isinstance(layer, _PositionLayer):
                layer.length = min(layer.length, length)


def _position_layer(layer: Any, capacity: int) -> Any:
    name = type(layer).__name__
    if name == _STATELESS:
        return layer
    if name not in _BY_POSITION:
        raise InputError(
            f"the target has a layer whose state cannot roll back ({name}); speculative decoding "
            "needs attention layers only."
        )
    return _PositionLayer(capacity, is_sliding=_BY_POSITION[name])


class DraftCache(_Rows):
    """The draft's keys and values; ``committed`` rows come from the target's own states.

    Rows behind them belong to the chain being drafted and are overwritten by the next round.
    """

    def __init__(self, shape: DraftShape, capacity: int, like: Tensor) -> None:
        heads, size = shape.num_key_value_heads, shape.head_dim
        empty = torch.empty(1, heads, 0, size, dtype=like.dtype, device=like.device)
        super().__init__(capacity, empty, empty)
        self.committed = 0
