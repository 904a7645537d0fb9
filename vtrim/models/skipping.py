"""A model with some of its decoder blocks left out, as a cheap draft of the whole one.

The weights are the original's own: nothing is copied, and the original stays as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from itertools import chain
from typing import Any

from torch import nn

from vtrim.errors import OptionError
from vtrim.models.lean import LeanTarget
from vtrim.models.target import Target


def without_layers(target: Target, skipped: Collection[int]) -> Target:
    """A second model of the target's blocks, all but ``skipped`` (counted from 0).

    It shares every weight with ``target`` and has no auxiliary states.

    Raises:
        OptionError: a block does not exist, or none would be left.
    """
    beyond = [block for block in skipped if not 0 <= block < target.num_layers]
    if beyond or len(set(skipped)) == target.num_layers:
        raise OptionError(
            f"--skip-layers: {target.name} has blocks 0 to {target.num_layers - 1}; "
            + (f"there is no block {beyond[0]}." if beyond else "at least one has to stay.")
        )
    kept = [block for block in range(target.num_layers) if block not in skipped]
    model = _share(target.model)
    whole = Target(model, target.name, ())
    _keep(whole, kept)
    left_out = f" without blocks {', '.join(map(str, sorted(set(skipped))))}" if skipped else ""
    part = Target(model, target.name + left_out, ())
    return target.of_blocks(part, kept) if isinstance(target, LeanTarget) else part


def _share(model: Any) -> Any:
    """A copy of the modules and their config around the same tensors, without hooks."""
    tensors = chain(model.parameters(), model.buffers())
    twin = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
    for module in twin.modules():  # the target's own hooks take its auxiliary states
        module._forward_pre_hooks.clear()
        module._forward_pre_hooks_with_kwargs.clear()
    return twin


def _keep(whole: Target, kept: list[int]) -> None:
    """Drops all other blocks of ``whole`` and numbers the rest as its cache will find them."""
    blocks = nn.ModuleList(whole.layers[block] for block in kept)
    for index, block in enumerate(blocks):
        part: Any
        for part in block.modules():
            if hasattr(part, "layer_idx"):
                part.layer_idx = index
    place = next(name for name, child in whole.decoder.named_children() if child is whole.layers)
    setattr(whole.decoder, place, blocks)
    config = whole.config
    kinds = getattr(config, "layer_types", None)
    config.num_hidden_layers = len(kept)
    if kinds is not None:
        config.layer_types = [kinds[block] for block in kept]
