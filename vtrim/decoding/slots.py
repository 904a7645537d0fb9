"""A preallocated KV cache for many rows of different lengths that all end at one cursor.

Rows are right-aligned: a row that holds n tokens occupies the last n columns before the cursor,
so relative distances inside a row are those of the text and any padding mask works, sliding
windows included. Rows 0..num_rows-1 are live; a finished row gives its slot to the last live one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

SLACK = 256  # columns to fill before the live columns are moved back to the left


@dataclass
class Window:
    """The live part of the buffers: rows [0, num_rows), columns [start, end)."""

    num_rows: int = 0
    start: int = 0
    end: int = 0


class SlotLayer(DynamicLayer):
    """One layer's keys and values, [slots, heads, columns, head size] each."""

    keys: Any  # [slots, heads, columns, head size] once initialised
    values: Any

    def __init__(self, window: Window, num_slots: int, columns: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.window = window
        self.num_slots = num_slots
        self.columns = columns

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocates the buffers; zeros, because masked columns still enter a product."""
        self.keys, self.values = (
            x.new_zeros(self.num_slots, x.shape[1], self.columns, x.shape[3])
            for x in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Writes one column of all live rows; returns the live part with it."""
        rows, start, end = self.window.num_rows, self.window.start, self.window.end
        self.keys[:rows, :, end : end + 1] = key_states
        self.values[:rows, :, end : end + 1] = value_states
        return self.keys[:rows, :, start : end + 1], self.values[:rows, :, start : end + 1]

    def get_seq_length(self) -> int:
        """Columns before the token that is being computed."""
        return self.window.end - self.window.start

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Columns a mask must cover, and the first of them."""
        return self.get_seq_length() + query_length, 0


class SlotCache(Cache):
    """The layers of all slots behind one window."""

    def __init__(self, num_layers: int, num_slots: int) -> None:
        self.window = Window()
        self.num_slots = num_slots
        self.columns = 0
        self.slot_layers = [SlotLayer(self.window, num_slots, 0) for _ in range(num_layers)]
        super().__init__(layers=list(self.slot_layers))

    def make_room(self, length: int) -> int:
        """Makes the cursor at least ``length`` with a free column after it.

        Returns by how many columns the live rows moved to the right (negative: to the left).
        """
        window = self.window
        if length <= window.end < self.columns:
            return 0
        live = window.end - window.start
        end = max(length, live)
        columns = max(self.columns, end + SLACK)
        for layer in self.slot_layers:
            self._move(layer, live, end, columns)
        shift = end - window.end
        self.columns, window.start, window.end = columns, end - live, end
        return shift

    def _move(self, layer: SlotLayer, live: int, end: int, columns: int) -> None:
        layer.columns = columns
        if not layer.is_initialized:
            return
        window, rows = self.window, self.window.num_rows
        for name in ("keys", "values"):
            old: Tensor = getattr(layer, name)
            kept = old[:rows, :, window.start : window.end].clone()
            grown = old.shape[2] < columns
            new = old.new_zeros(*old.shape[:2], columns, old.shape[3]) if grown else old
            new[:rows, :, end - live : end] = kept
            setattr(layer, name, new)

    def add(self, prefilled: Cache, lengths: list[int]) -> None:
        """Appends rows from a left-padded cache of [r, heads, P, head size] layers."""
        window = self.window
        width = prefilled.get_seq_length()
        rows = slice(window.num_rows, window.num_rows + len(lengths))
        sources: list[Any] = prefilled.layers
        for layer, source in zip(self.slot_layers, sources, strict=True):
            if not layer.is_initialized:
                layer.lazy_initialization(source.keys, source.values)
            layer.keys[rows, :, window.end - width : window.end] = source.keys
            layer.values[rows, :, window.end - width : window.end] = source.values
        window.num_rows += len(lengths)

    def drop(self, row: int) -> None:
        """Frees one row; the last live row takes its place."""
        window = self.window
        window.num_rows -= 1
        if row == window.num_rows:
            return
        columns = slice(window.start, window.end)
        for layer in self.slot_layers:
            layer.keys[row, :, columns] = layer.keys[window.num_rows, :, columns]
            layer.values[row, :, columns] = layer.values[window.num_rows, :, columns]


def left_padded(sequences: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids and mask of right-aligned sequences, [r, P] int64 each; padding id is 0."""
    width = max(map(len, sequences))
    ids = torch.zeros(len(sequences), width, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, width - len(sequence) :] = torch.tensor(sequence)
        mask[row, width - len(sequence) :] = 1
    return ids.to(device), mask.to(device)
