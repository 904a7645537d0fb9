"""The DeepSpeed configuration: ours, or the user's, checked before any model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vtrim.artifacts import read_json
from vtrim.errors import OptionError
from vtrim.training.settings import TrainSettings

_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def deepspeed_config(
    settings: TrainSettings, world_size: int, user: dict[str, Any] | None, origin: str = ""
) -> dict[str, Any]:
    """A config without a single "auto", whose batch sizes agree.

    Raises:
        OptionError: the user's file contradicts itself or the options; names the numbers.
    """
    ours: dict[str, Any] = {
        "train_batch_size": settings.micro_batch * settings.grad_accum * world_size,
        "train_micro_batch_size_per_gpu": settings.micro_batch,
        "gradient_accumulation_steps": settings.grad_accum,
        "gradient_clipping": settings.clip,
        "zero_optimization": {"stage": settings.zero_stage},
        "bf16": {"enabled": settings.dtype == "bf16"},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**9,
    }
    if settings.zero_stage > 0:  # stage 0 in bf16 takes no other type than its own
        ours["data_types"] = {"grad_accum_dtype": "fp32"}
    if user is None:
        return ours
    for section, option in (("optimizer", "--optimizer, --lr"), ("scheduler", "--warmup")):
        if section in user:
            raise OptionError(f'{origin}: "{section}" is set by vtrim ({option}); leave it out.')
    _check_typed(user, ours, origin)
    resolved = _resolve_auto(user, ours)
    merged = {**ours, **resolved}
    for section in ("zero_optimization", "bf16"):
        merged[section] = {**ours[section], **resolved.get(section, {})}
    _check_precision(user, settings, origin)
    _check_batch(user, merged, world_size, origin)
    return merged


def read_user_config(path: Path) -> dict[str, Any]:
    """A user's ds_config.json.

    Raises:
        OptionError: it is not a JSON object.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise OptionError(f"{path}: a DeepSpeed config is one JSON object.")
    return value


def settings_from(user: dict[str, Any]) -> dict[str, Any]:
    """The run settings that a user's config decides: batch sizes, clipping, stage, dtype."""
    found: dict[str, Any] = {}
    for key, name in (
        ("train_micro_batch_size_per_gpu", "micro_batch"),
        ("gradient_accumulation_steps", "grad_accum"),
        ("gradient_clipping", "clip"),
    ):
        if isinstance(user.get(key), int | float):
            found[name] = user[key]
    stage = user.get("zero_optimization", {}).get("stage")
    if isinstance(stage, int):
        found["zero_stage"] = stage
    if user.get("bf16", {}).get("enabled") is True:
        found["dtype"] = "bf16"
    return found


def _resolve_auto(user: dict[str, Any], ours: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Replaces every "auto" by our value; refuses one we have no value for."""
    resolved: dict[str, Any] = {}
    for key, value in user.items():
        name = f"{path}{key}"
        if isinstance(value, dict):
            nested = ours.get(key)
            resolved[key] = _resolve_auto(
                value, nested if isinstance(nested, dict) else {}, f"{name}."
            )
        elif value == "auto" and name == "fp16.enabled":
            resolved[key] = False
        elif value == "auto" and key in ours:
            resolved[key] = ours[key]
        elif value == "auto":
            raise OptionError(f'DeepSpeed config: "{name}" is "auto", which vtrim cannot resolve.')
        else:
            resolved[key] = value
    return resolved


def _check_typed(user: dict[str, Any], ours: dict[str, Any], origin: str) -> None:
    """Refuses a file that says otherwise than the options that were typed."""
    pairs = [(key, user.get(key), ours[key]) for key in (*_BATCH[1:], "gradient_clipping")]
    for section, key in (("zero_optimization", "stage"), ("bf16", "enabled")):
        pairs.append((f"{section}.{key}", user.get(section, {}).get(key), ours[section][key]))
    for name, theirs, typed in pairs:
        if theirs not in (None, "auto", typed) and name != "bf16.enabled":
            raise OptionError(f"{origin}: {name} is {theirs}, but the options say {typed}.")
        if name == "bf16.enabled" and theirs is True and not typed:
            raise OptionError(f"{origin}: bf16 is enabled, but the options say --dtype fp32.")


def _check_precision(user: dict[str, Any], settings: TrainSettings, origin: str) -> None:
    half = user.get("fp16", {}).get("enabled")
    brain = user.get("bf16", {}).get("enabled")
    if half is True and brain is True:
        raise OptionError(f"{origin}: bf16 and fp16 are both enabled; keep one.")
    if half is True:
        raise OptionError(
            f"{origin}: fp16 is enabled, but auxiliary states reach beyond fp16's range; use bf16."
        )
    if brain is False and settings.dtype == "bf16":
        raise OptionError(f"{origin}: bf16 is disabled; give --dtype fp32 as well.")


def _check_batch(
    user: dict[str, Any], merged: dict[str, Any], world_size: int, origin: str
) -> None:
    total, micro, accum = (merged[key] for key in _BATCH)
    if "train_batch_size" not in user or user["train_batch_size"] == "auto":
        merged["train_batch_size"] = micro * accum * world_size
        return
    if total != micro * accum * world_size:
        raise OptionError(
            f"{origin}: train_batch_size {total} is not train_micro_batch_size_per_gpu {micro} x "
            f"gradient_accumulation_steps {accum} x processes {world_size} = "
            f"{micro * accum * world_size}."
        )
