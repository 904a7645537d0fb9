"""The DeepSpeed configuration: ours, or the user's, checked before any model is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vtrim.artifacts import read_object
from vtrim.errors import OptionError
from vtrim.training.ds_schema import (
    check_by_deepspeed,
    check_keys,
    check_monitors,
    check_sections,
    check_zero,
)
from vtrim.training.ds_sections import (
    auto_optimizer_values,
    check_optimizer_section,
    check_scheduler_section,
    is_number,
    optimizer_settings,
    section,
)
from vtrim.training.ds_trial import check_kinds, try_sections
from vtrim.training.settings import TrainSettings, option_of

_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def deepspeed_config(
    settings: TrainSettings,
    world_size: int,
    user: dict[str, Any] | None,
    origin: str = "",
    hidden_size: int | None = None,
) -> dict[str, Any]:
    """A config whose batch sizes agree, without an "auto" outside ``scheduler``.

    hidden_size: the draft's, for bucket sizes that are "auto" (None: DeepSpeed's own). What is
    "auto" in ``scheduler`` needs the run's length: see ``ds_sections.complete_scheduler``.

    Raises:
        OptionError: the user's file contradicts itself or the options, or has a key that DeepSpeed
            does not know or that would have no effect; names the key and the numbers.
    """
    ours = _own_config(settings, world_size)
    if user is None:
        return ours
    kept = check_keys(user, origin)
    check_kinds(kept, origin)
    _check_precision(kept, origin)
    _check_agreement(user, settings, world_size, origin)
    resolved = _resolve_auto(kept, {**ours, **_auto_values(settings, hidden_size)}, origin)
    merged = {**ours, **resolved}
    for name in ("zero_optimization", "bf16"):
        merged[name] = {**ours[name], **resolved.get(name, {})}
    _check_batch(user, merged, world_size, origin)
    check_sections(merged, origin)
    check_optimizer_section(merged, settings, origin)
    check_scheduler_section(merged, settings, origin)
    check_zero(merged, origin)
    check_monitors(merged, origin)
    check_by_deepspeed(merged, origin)
    try_sections(merged, settings, origin)
    return merged


def _own_config(settings: TrainSettings, world_size: int) -> dict[str, Any]:
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
    return ours


def read_user_config(path: Path) -> dict[str, Any]:
    """A user's ds_config.json.

    Raises:
        InputError: it is not a JSON object.
        OptionError: a key stands in it twice.
    """
    read_object(path)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        for key in keys:
            if keys.count(key) > 1:
                raise OptionError(f"{path}: '{key}' stands there twice.")
        return dict(pairs)

    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=once)
    return found


def settings_from(
    user: Mapping[str, Any],
    typed: Mapping[str, Any] | None = None,
    world_size: int = 1,
    origin: str = "",
) -> dict[str, Any]:
    """The run settings that a user's config decides; ``typed``: those of the command line.

    Raises:
        OptionError: a value is out of its range, or the batch sizes do not divide.
    """
    found: dict[str, Any] = {}
    for name, (key, value) in _decided(user, typed or {}, world_size, origin).items():
        try:
            TrainSettings(**{name: value})
        except OptionError as error:
            raise OptionError(f"{origin}: {str(error).replace(option_of(name), key)}") from error
        found[name] = value
    return found


def _decided(
    user: Mapping[str, Any], typed: Mapping[str, Any], world_size: int, origin: str
) -> dict[str, tuple[str, Any]]:
    """Setting -> (key of the file, value)."""
    found = {**_batch_settings(user, typed, world_size, origin), **optimizer_settings(user)}
    for name, key, value in (
        ("clip", "gradient_clipping", user.get("gradient_clipping")),
        ("zero_stage", "zero_optimization.stage", section(user, "zero_optimization").get("stage")),
    ):
        if value not in (None, "auto"):
            if not is_number(value):
                raise OptionError(f'{origin}: {key} is {value!r}; give a number, or "auto".')
            found[name] = (key, value)
    enabled = section(user, "bf16").get("enabled")
    if isinstance(enabled, bool):
        found["dtype"] = ("bf16.enabled", "bf16" if enabled else "fp32")
    return found


def _batch_settings(
    user: Mapping[str, Any], typed: Mapping[str, Any], world_size: int, origin: str
) -> dict[str, tuple[str, Any]]:
    """micro_batch and grad_accum; what the file leaves open follows from train_batch_size."""
    found: dict[str, tuple[str, Any]] = {}
    total, micro, accum = (_whole(user, key, origin) for key in _BATCH)
    for name, key, value in (("micro_batch", _BATCH[1], micro), ("grad_accum", _BATCH[2], accum)):
        if value is not None:
            found[name] = (key, value)
    micro = micro or typed.get("micro_batch")
    accum = accum or typed.get("grad_accum")
    if total is None or (micro and accum):
        return found
    known = world_size * (micro or accum or 1)
    if total % known:
        of = f"{_BATCH[1]} {micro} x " if micro else f"{_BATCH[2]} {accum} x " if accum else ""
        raise OptionError(
            f"{origin}: train_batch_size {total} is no multiple of {of}processes {world_size}."
        )
    name = "grad_accum" if micro else "micro_batch"
    found[name] = (_BATCH[0], total // known)
    return found


def _whole(user: Mapping[str, Any], key: str, origin: str) -> int | None:
    value = user.get(key)
    if value in (None, "auto"):
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f'{origin}: {key} is {value!r}; give a whole number from 1, or "auto".')
    return value


def _check_agreement(
    user: Mapping[str, Any], settings: TrainSettings, world_size: int, origin: str
) -> None:
    """Refuses a file that says otherwise than the options that were typed."""
    for name, (key, value) in _decided(user, settings.to_dict(), world_size, origin).items():
        now = getattr(settings, name)
        if now != value:
            raise OptionError(
                f"{origin}: {key} says {value}, but the options say {option_of(name)} {now}; "
                "keep one."
            )


def _auto_values(settings: TrainSettings, hidden_size: int | None) -> dict[str, Any]:
    """What "auto" means inside sections, as in Hugging Face's integration of DeepSpeed."""
    zero: dict[str, Any] = {"stage": settings.zero_stage}
    if hidden_size is not None:
        zero["reduce_bucket_size"] = hidden_size**2
        zero["stage3_prefetch_bucket_size"] = int(0.9 * hidden_size**2)
        zero["stage3_param_persistence_threshold"] = 10 * hidden_size
    return {
        "zero_optimization": zero,
        "fp16": {"enabled": False},
        "optimizer": {"params": auto_optimizer_values(settings)},
    }


_OWN_DEFAULT = ("zero_optimization", "fp16", "bf16", "comms_logger", "timers")
"""Sections whose "auto" without a value of ours is left to DeepSpeed's own default."""


def _resolve_auto(
    user: Mapping[str, Any], values: Mapping[str, Any], origin: str, path: str = ""
) -> dict[str, Any]:
    """Replaces every "auto" by our value; refuses one we have no value for."""
    resolved: dict[str, Any] = {}
    for key, value in user.items():
        name = f"{path}{key}"
        if isinstance(value, dict) and name != "scheduler":
            nested = values.get(key)
            inner = nested if isinstance(nested, dict) else {}
            resolved[key] = _resolve_auto(value, inner, origin, f"{name}.")
        elif value != "auto":
            resolved[key] = value
        elif key in values:
            resolved[key] = values[key]
        elif name.split(".")[0] not in _OWN_DEFAULT:
            raise OptionError(f'{origin}: {name} is "auto", which vtrim cannot resolve.')
    return resolved


def _check_precision(user: Mapping[str, Any], origin: str) -> None:
    half = section(user, "fp16").get("enabled")
    if half is True and section(user, "bf16").get("enabled") is True:
        raise OptionError(f"{origin}: bf16 and fp16 are both enabled; keep one.")
    if section(user, "bf16").get("check_grad_overflow") is False:
        raise OptionError(
            f"{origin}: bf16.check_grad_overflow false lets a step that is not finite spoil the "
            "weights; leave it out."
        )
    if half is True:
        raise OptionError(
            f"{origin}: fp16 is enabled, but auxiliary states reach beyond fp16's range; use bf16."
        )


def _check_batch(
    user: Mapping[str, Any], merged: dict[str, Any], world_size: int, origin: str
) -> None:
    total, micro, accum = (merged[key] for key in _BATCH)
    if user.get("train_batch_size") in (None, "auto"):
        merged["train_batch_size"] = micro * accum * world_size
    elif total != micro * accum * world_size:
        raise OptionError(
            f"{origin}: train_batch_size {total} is not train_micro_batch_size_per_gpu {micro} x "
            f"gradient_accumulation_steps {accum} x processes {world_size} = "
            f"{micro * accum * world_size}."
        )
