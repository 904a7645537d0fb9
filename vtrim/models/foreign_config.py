"""Reading the config.json of any project's draft: flat, or nested in two ways."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from vtrim.artifacts import read_json
from vtrim.errors import InputError


def _is_whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_token(value: Any) -> bool:
    # -1 stands for none in old configs
    return all(type(token) is int for token in (value if isinstance(value, list) else [value]))


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


# what vtrim reads itself; dimensions are checked where the draft is shaped
_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "architectures": (_is_names, "a list of names"),
    **dict.fromkeys(
        ("vtrim", "eagle_config", "transformer_layer_config"), (_is_object, "an object")
    ),
    **dict.fromkeys(("vocab_size", "num_target_layers"), (_is_whole, "a whole number")),
    **dict.fromkeys(
        ("bos_token_id", "eos_token_id", "pad_token_id"),
        (_is_token, "a token id or a list of them"),
    ),
}


def read_config(path: Path) -> dict[str, Any]:
    """A draft's config.json; what vtrim reads of it itself is of the right type.

    Raises:
        InputError: it is missing, not whole, no object, or holds something else under a name.
    """
    config = read_json(path)
    if not isinstance(config, dict):
        raise InputError(f"{path}: not a draft's config: an object is expected.")
    for part in (config, *(config.get(name) for name in ("transformer_layer_config", "vtrim"))):
        for name, value in part.items() if isinstance(part, dict) else ():
            fits, wanted = _TYPES.get(name, (None, ""))
            if fits is not None and value is not None and not fits(value):
                raise InputError(f"{path}: '{name}' is {value!r:.60}, not {wanted}.")
    return config


def flat_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A draft's config with its nested layer config and its ``eagle_config`` on one level.

    The top level wins, then ``transformer_layer_config`` (speculators), then ``eagle_config``.
    """
    parts = [config.get(name) for name in ("eagle_config", "transformer_layer_config")]
    flat: dict[str, Any] = {}
    for part in parts:
        flat.update(part if isinstance(part, Mapping) else {})
    flat.update(
        (name, value)
        for name, value in config.items()
        if name not in ("eagle_config", "transformer_layer_config", "speculators_config")
    )
    return flat


def check_residual(config: Mapping[str, Any], flat: Mapping[str, Any], folder: Path) -> None:
    """Refuses a nested config that leaves ``norm_before_residual`` to whoever reads it.

    Raises:
        InputError: it does.
    """
    nested = isinstance(config.get("transformer_layer_config"), Mapping)
    if nested and flat.get("norm_before_residual") is None:
        raise InputError(
            f"{folder / 'config.json'}: does not say norm_before_residual, which vLLM and "
            "speculators read differently. Add the value the draft was trained with."
        )


def rope_scaling(flat: Mapping[str, Any]) -> str | None:
    """The kind of rope scaling that a config names; None for the plain base."""
    for name in ("rope_scaling", "rope_parameters"):
        value = flat.get(name)
        if isinstance(value, Mapping):
            kind = value.get("rope_type") or value.get("type") or "default"
            if kind != "default":
                return str(kind)
    return None


def verifier_name(config: Mapping[str, Any]) -> str | None:
    """The target that speculators' config names; None elsewhere."""
    part: Any = config
    for key in ("speculators_config", "verifier", "name_or_path"):
        part = part.get(key) if isinstance(part, Mapping) else None
    return part if isinstance(part, str) and part else None


def layout_name(config: Mapping[str, Any], tensors: Collection[str]) -> str:
    """Whose layout a checkpoint has, for people to read."""
    if isinstance(config.get("transformer_layer_config"), Mapping):
        return "speculators"
    if any(name.removeprefix("model.").startswith("layers.0.") for name in tensors):
        return "ModelOpt" if "t2d" not in tensors else "vLLM"
    if "vtrim" in config:
        return "vtrim"
    named = config.get("architectures") or ()
    known = {"LlamaForCausalLMEagle3": "SpecForge", "Eagle3LlamaForCausalLM": "AngelSlim"}
    return next((project for name, project in known.items() if name in named), "EAGLE")


def ignored_base(layout: str, flat: Mapping[str, Any]) -> float | None:
    """The RoPE base in a config whose trainer takes 10,000 whatever it says; None elsewhere."""
    base = flat.get("rope_theta")
    trained_plain = layout in ("EAGLE", "AngelSlim") and isinstance(base, int | float)
    return base if trained_plain and base != 10000 else None
