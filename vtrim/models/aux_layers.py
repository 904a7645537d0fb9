"""Which states of the target a draft reads; a foreign key of it means two things (vLLM #43671).

vtrim counts as vLLM and speculators do: index j is the state entering block j. SGLang, ModelOpt
and TensorRT-LLM name the block whose *output* is taken, one less.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtrim.errors import InputError, OptionError

KEY = "eagle_aux_hidden_state_layer_ids"
Triple = tuple[int, int, int]
AuxLayers = Triple | tuple[()]
"""hidden_states indices of the three auxiliary states, or none."""


def default_aux_layers(num_layers: int) -> Triple:
    """The three hidden_states indices EAGLE-3 reads (arXiv:2503.01840): 2, n//2, n-3.

    Below 7 layers two of them coincide, so (max(1, n//4), n//2, n-1) serves instead.

    Raises:
        InputError: fewer than 4 layers, too few for three distinct states.
    """
    if num_layers < 4:
        raise InputError(f"the target has {num_layers} layers; an EAGLE-3 draft needs at least 4.")
    if num_layers < 7:
        return max(1, num_layers // 4), num_layers // 2, num_layers - 1
    return 2, num_layers // 2, num_layers - 3


def named_aux_layers(
    config: Mapping[str, Any], num_layers: int, origin: str, notes: list[str]
) -> Triple | None:
    """hidden_states indices that a draft's config names; None where it names none.

    At the top level they are such indices; inside ``eagle_config`` they name blocks and one is
    added. num_layers: of the target, 0 where unknown.

    Raises:
        InputError: not three layers, or one that the target does not have.
    """
    nested = config.get("eagle_config")
    inner = nested.get(KEY) if isinstance(nested, Mapping) else None
    blocks = _triple(inner, origin) if inner else None
    if config.get(KEY):
        indices = _triple(config[KEY], origin)
        if blocks is not None and _entering(blocks) != indices:
            notes.append(
                f"auxiliary layers: {list(indices)} at the top level and blocks {list(blocks)} in "
                "eagle_config name other states; the first are taken"
            )
    elif blocks is not None:
        indices = _entering(blocks)
        notes.append(f"auxiliary layers {list(blocks)} name blocks: hidden_states {list(indices)}")
    else:
        return None
    check_aux_layers(indices, num_layers, origin)
    if num_layers >= 7 and indices == (1, num_layers // 2 - 1, num_layers - 4):
        notes.append(
            f"auxiliary layers {list(indices)} are taken for hidden_states; they look like blocks: "
            f"if so, --aux-layers 2,{num_layers // 2},{num_layers - 3}"
        )
    return indices


def check_chosen_layers(layers: AuxLayers, num_layers: int) -> None:
    """Refuses the hidden_states indices of a target's own states unless EAGLE can name them.

    Raises:
        OptionError: they are not three ascending ones of its blocks.
    """
    if not layers:
        return
    low, mid, high = layers
    if not 1 <= low < mid < high < num_layers:  # engines sort and drop doubles in silence
        raise OptionError(
            f"auxiliary layers {low},{mid},{high}: give three ascending hidden_states indices "
            f"between 1 and {num_layers - 1} (the target has {num_layers} layers)."
        )


def check_aux_layers(indices: Triple, num_layers: int, origin: str) -> None:
    """Refuses hidden_states indices that are not ascending, distinct and of the target.

    num_layers: of the target, 0 where unknown. Index 0, the embedding, is no block's output, so
    the engines that count blocks cannot name it; the last state is normed.

    Raises:
        InputError: they are not.
    """
    low, mid, high = indices
    if 1 <= low < mid < high and (not num_layers or high < num_layers):
        return
    known = f"1 to {num_layers - 1}, what a target of {num_layers} layers has" if num_layers else ""
    raise InputError(
        f"{origin}: auxiliary layers {list(indices)} (hidden_states indices) are not three of "
        f"{known or '1 and above'}, ascending. Name them with --aux-layers."
    )


def _triple(value: Any, origin: str) -> Triple:
    if not isinstance(value, list) or len(value) != 3 or not all(type(j) is int for j in value):
        raise InputError(f"{origin}: names auxiliary layers {value}, not three numbers.")
    low, mid, high = sorted(value)
    return low, mid, high


def _entering(blocks: Triple) -> Triple:
    """The hidden_states indices of what three blocks put out."""
    low, mid, high = blocks
    return low + 1, mid + 1, high + 1
