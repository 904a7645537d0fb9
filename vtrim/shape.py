"""The dimensions of an EAGLE-3 draft, read from its target's ``config.json``.

Plain numbers only, so that counting FLOPs and searching need no model library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vtrim.errors import InputError


@dataclass(frozen=True, kw_only=True)
class DraftShape:
    """Dimensions of the draft; the target's own unless overridden.

    ``head_dim`` is read, never derived where the config names it (Qwen3: heads * head_dim differs
    from the hidden size). RoPE is the target's base without scaling: what every engine reads.
    """

    hidden_size: int
    target_hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    target_vocab_size: int
    num_target_layers: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int

    def to_dict(self) -> dict[str, Any]:
        """The fields as a plain mapping."""
        return asdict(self)

    @classmethod
    def from_target_config(
        cls, config: Mapping[str, Any], overrides: Mapping[str, Any] | None = None
    ) -> DraftShape:
        """The default draft for a target, from its config as a plain mapping.

        Raises:
            InputError: a dimension is missing or no positive number, or an override names an
                unknown field.
        """
        text = _text_config(config)
        text = {**text, "rope_theta": _rope_theta(text)}
        heads = _need(text, "num_attention_heads")
        hidden = _need(text, "hidden_size")
        values: dict[str, Any] = {
            "hidden_size": hidden,
            "target_hidden_size": hidden,
            "intermediate_size": _need(text, "intermediate_size"),
            "num_attention_heads": heads,
            "num_key_value_heads": _read(text, "num_key_value_heads", int, heads),
            "head_dim": _read(text, "head_dim", int, hidden // heads),
            "target_vocab_size": _need(text, "vocab_size"),
            "num_target_layers": _need(text, "num_hidden_layers"),
            "rms_norm_eps": _read(text, "rms_norm_eps", float, 1e-5),
            "rope_theta": _read(text, "rope_theta", float, 10000.0),
            "max_position_embeddings": _need(text, "max_position_embeddings"),
        }
        for key, value in (overrides or {}).items():
            if key not in values:
                known = ", ".join(sorted(values))
                raise InputError(f"draft config: unknown key '{key}'. Known: {known}.")
            values[key] = _positive(key, value, type(values[key]), "draft config")
        return cls(**values)


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a config (multimodal targets nest it)."""
    nested = config.get("text_config")
    return nested if isinstance(nested, Mapping) else config


def _need(config: Mapping[str, Any], key: str) -> int:
    if config.get(key) is None:
        raise InputError(f"{_origin(config)} has no '{key}'; vtrim needs it to shape the draft.")
    return int(_read(config, key, int, 0))


def _read(
    config: Mapping[str, Any], key: str, kind: type[int] | type[float], default: float
) -> float:
    """The value of a key, or what a config means that leaves it out."""
    value = config.get(key)
    return _positive(key, default if value is None else value, kind, _origin(config))


def _origin(config: Mapping[str, Any]) -> str:
    return f"config.json (model_type '{config.get('model_type', 'unknown')}')"


def _positive(key: str, value: Any, kind: type[int] | type[float], origin: str) -> float:
    """``value`` as a finite number above 0 of that kind; a whole one for int."""
    try:
        number = kind(value)
        good = 0 < number < math.inf and (isinstance(value, str) or number == value)
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good or isinstance(value, bool):
        needed = "a whole number" if kind is int else "a number"
        raise InputError(f"{origin}: '{key}' is {value!r}; {needed} above 0 is needed.")
    return number


def _rope_theta(config: Mapping[str, Any]) -> Any:
    """The base of the rotary embedding, wherever a config keeps it; a nested one wins.

    transformers 5 nests it. Where each type of layer has its own (Gemma 3), the draft, which
    attends to everything, takes that of full attention.
    """
    for name in ("rope_scaling", "rope_parameters"):
        nested = config.get(name)
        if isinstance(nested, Mapping):
            by_type = [part for part in nested.values() if isinstance(part, Mapping)]
            for part in (nested.get("full_attention"), nested, *by_type):
                if isinstance(part, Mapping) and part.get("rope_theta") is not None:
                    return part["rope_theta"]
    return config.get("rope_theta")
