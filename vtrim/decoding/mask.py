"""Who attends to whom when trees of many sequences go through one forward.

Shapes: B sequences, T rows each (the last token, then the drafted ones, then padding), S columns of
the cache: a sequence that holds n tokens has them in columns 0..n-1 and its T rows behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vtrim.decoding.cache import PositionLayer, TargetCache
from vtrim.decoding.protocol import Proposal

Mask = Tensor | dict[str, Tensor]
"""[B, 1, T, S] bool, True attends; by layer type where the layers' attention differs."""


@dataclass(frozen=True)
class Reach:
    """How far a layer's attention goes back: ``window`` positions, or to its chunk's start."""

    window: int | None
    chunked: bool = False

    def limit(self, mask: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """A causal mask without what lies out of reach. rows: [B, T], columns: [B, S] positions."""
        if self.window is None:
            return mask
        row, column = rows[:, None, :, None], columns[:, None, None, :]
        if self.chunked:
            return mask & (row // self.window == column // self.window)
        return mask & (row - column < self.window)


class TreeMasks:
    """Masks and positions of a target's rows, in the form its layers take them."""

    def __init__(self, config: Any, cache: TargetCache, context_length: int) -> None:
        """config: of the target's text part; context_length: positions there are."""
        layers: list[Any] = list(cache.layers)
        kinds = getattr(config, "layer_types", None) or ["all"] * len(layers)
        self.reaches = {
            kind: Reach(layer.window, "chunked" in kind)
            for kind, layer in zip(kinds, layers, strict=True)
            if isinstance(layer, PositionLayer)
        }
        self.last_position = context_length - 1

    def make(
        self, proposals: Sequence[Proposal], lengths: Sequence[int], device: torch.device
    ) -> tuple[Mask, Tensor]:
        """The mask, and the position of each row [B, T]. lengths: [B] tokens in the cache."""
        width = 1 + max(proposal.size for proposal in proposals)
        seen, depths = _trees(proposals, width)
        kept = torch.tensor(lengths, device=device)[:, None]
        depth = torch.from_numpy(depths).to(device)
        column = torch.arange(max(lengths) + width, device=device) - kept  # 0: the last token's
        row = column.clamp(0, width - 1)  # the row that wrote a column
        inside = (column >= 0) & (column < width)
        own = torch.from_numpy(seen).to(device).gather(2, row[:, None].expand(-1, width, -1))
        mask = ((column < 0)[:, None] | (inside[:, None] & own))[:, None]
        positions = (kept + depth).clamp(max=self.last_position)  # padding may lie behind the end
        places = kept + torch.where(column < 0, column, depth.gather(1, row))
        masks = {kind: reach.limit(mask, positions, places) for kind, reach in self.reaches.items()}
        if len(set(self.reaches.values())) == 1:
            return next(iter(masks.values())), positions
        return masks, positions


def _trees(proposals: Sequence[Proposal], width: int) -> tuple[Any, Any]:
    """Which rows each row sees [B, T, T] bool, and its distance from the last token [B, T].

    Padding rows see themselves, so that no row sees nothing.
    """
    seen = np.zeros((len(proposals), width, width), dtype=np.bool_)
    seen[:, range(width), range(width)] = True
    depths = np.tile(np.arange(width), (len(proposals), 1))
    for tree, depth, proposal in zip(seen, depths, proposals, strict=True):
        if proposal.parents is None or proposal.is_chain:
            tree |= np.tri(width, dtype=np.bool_)
            continue
        depth[1 : proposal.size + 1] = np.array(proposal.depths) + 1
        tree[:, 0] = True
        for node, parent in enumerate(proposal.parents):
            tree[node + 1] |= tree[parent + 1]
    return seen, depths
