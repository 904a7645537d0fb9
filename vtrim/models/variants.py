"""Variants of EAGLE-3 that compute something else than the plain draft: named and refused.

Read as the plain draft they would load and draft badly, and nothing would tell.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from vtrim.errors import InputError

_NORM_FC = "a norm before fc (norm_before_fc)"
_CHUNKS = "norms over each auxiliary state (fc_norm)"
_OUTPUT = "the normed state fed back (norm_output, EAGLE-3.1)"

# config key -> the value that makes it a variant, and its name
_FLAGS: tuple[tuple[str, Any, str], ...] = (
    ("norm_before_residual", True, "the residual taken after the norm (norm_before_residual)"),
    ("norm_before_fc", True, _NORM_FC),
    ("fc_norm", True, _CHUNKS),
    ("norm_output", True, _OUTPUT),
    ("return_hidden_post_norm", True, _OUTPUT),
    ("use_aux_hidden_state", False, "no auxiliary states (use_aux_hidden_state false)"),
    ("eh_proj_before_attn", True, "a projection before attention (eh_proj_before_attn)"),
    ("parallel_drafting", True, "parallel drafting (P-EAGLE)"),
    ("attention_bias", True, "attention biases (attention_bias)"),
    ("mlp_bias", True, "MLP biases (mlp_bias)"),
)
_TENSORS: tuple[tuple[str, str], ...] = (
    (r"input_norm\.", _NORM_FC),
    (r"fc_norm\.|aux_norm_(low|mid|high)", _CHUNKS),
    (r"mask_hidden", "parallel drafting (P-EAGLE)"),
    (r"enorm\.|eh_proj\.", "a projection before attention (eh_proj_before_attn)"),
    (r".*self_attn\.[qk]_norm\.", "norms of queries and keys (a Qwen3 draft)"),
    (r"(layers|midlayer)\.[1-9]\d*\.", "several layers"),
    (r"medusa_head|\d+\.linear\.", "Medusa heads, not an EAGLE draft"),
    (r".*\.bias$", "biases"),
)


def refuse_variants(flags: Mapping[str, Any], names: Collection[str], origin: str) -> None:
    """Refuses a draft that is not the plain EAGLE-3 draft, and says what it is.

    flags: the draft's config, nested parts flattened. names: its tensors, in vtrim's naming.

    Raises:
        InputError: names the variant.
    """
    found = _variant(flags, names)
    if found is not None:
        raise InputError(f"{origin}: not the plain EAGLE-3 draft: {found}. vtrim cannot run it.")


def _variant(flags: Mapping[str, Any], names: Collection[str]) -> str | None:
    """The name of the first thing that makes it a variant."""
    for pattern, what in _TENSORS:
        if any(re.match(pattern, name) for name in names):
            return what
    for key, value, what in _FLAGS:
        if flags.get(key) is value:
            return what
    for part in (flags, flags.get("rope_parameters"), flags.get("rope_scaling")):
        if isinstance(part, Mapping) and part.get("partial_rotary_factor") not in (None, 1):
            return "only a part of each head rotated (partial_rotary_factor)"
    layers = flags.get("num_hidden_layers")
    if isinstance(layers, int) and layers > 1:
        return f"several layers (num_hidden_layers {layers})"
    act = flags.get("hidden_act") or flags.get("hidden_activation") or "silu"
    if act not in ("silu", "swish"):
        return f"activation '{act}' (hidden_act)"
    if flags.get("quantization_config"):
        return "quantised weights (quantization_config)"
    if "fc.weight" not in names:
        return "no fc.weight, which fuses three states of the target"
    return None
