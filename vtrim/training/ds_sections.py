"""The optimizer and scheduler sections of a user's DeepSpeed config: checked, mapped, completed."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from vtrim.errors import OptionError
from vtrim.training.ds_schema import unknown
from vtrim.training.settings import TrainSettings, option_of

ADAM = ("adam", "adamw")
_ADAM_PARAMS = ("lr", "betas", "eps", "weight_decay", "torch_adam", "adam_w_mode")
_MUON_PARAMS = (*_ADAM_PARAMS, "muon_lr", "adam_lr", "momentum", "ns_method")
_WITH_MUP = ("muadam", "muadamw", "musgd")
_DEEPSPEED_OWN = ("lamb", "lion", "adagrad", *_WITH_MUP)


def section(user: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The section ``name``, empty where the config has none."""
    found = user.get(name)
    return found if isinstance(found, dict) else {}


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number (true and false are not)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def optimizer_kind(user: Mapping[str, Any]) -> str:
    """The optimizer's type in lower case, "" where the config names none."""
    return str(section(user, "optimizer").get("type", "")).lower()


def optimizer_settings(user: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Settings that the optimizer section decides: name -> (key in the file, value)."""
    kind = optimizer_kind(user)
    params = section(section(user, "optimizer"), "params")
    found: dict[str, tuple[str, Any]] = {}
    sources: dict[str, tuple[str, ...]] = {"learning_rate": ("lr",)}
    if kind == "muon":
        found["optimizer"] = ("optimizer.type", "muon")
        sources = {"learning_rate": ("adam_lr", "lr"), "muon_lr": ("muon_lr", "lr")}
    for name, keys in {**sources, "weight_decay": ("weight_decay",)}.items():
        key = next((k for k in keys if is_number(params.get(k))), None)
        if key:
            found[name] = (f"optimizer.params.{key}", params[key])
    betas = params.get("betas")
    if isinstance(betas, list) and len(betas) == 2 and all(map(is_number, betas)):
        found["beta1"] = ("optimizer.params.betas[0]", betas[0])
        found["beta2"] = ("optimizer.params.betas[1]", betas[1])
    return found


def auto_optimizer_values(settings: TrainSettings) -> dict[str, Any]:
    """What "auto" means in ``optimizer.params``."""
    return {
        "lr": settings.learning_rate,
        "adam_lr": settings.learning_rate,
        "muon_lr": settings.muon_lr,
        "betas": [settings.beta1, settings.beta2],
        "weight_decay": settings.weight_decay,
        "eps": 1e-8,
        "momentum": 0.95,
    }


def check_optimizer_section(
    config: Mapping[str, Any], settings: TrainSettings, origin: str
) -> None:
    """Refuses an optimizer that DeepSpeed does not know, and parameters it does not take.

    Raises:
        OptionError: names the type or the key, with the nearest known one.
    """
    if "optimizer" not in config:
        return
    kind, written = optimizer_kind(config), str(config["optimizer"]["type"])
    params = section(config["optimizer"], "params")
    known = _known_params(kind, written, params, origin)
    for key, value in params.items():
        if key == "max_grad_norm":
            raise OptionError(f"{origin}: optimizer.params.max_grad_norm: use gradient_clipping.")
        if key not in known:
            raise unknown(key, known, origin, "optimizer.params")
        if key in ("lr", "muon_lr", "adam_lr", "weight_decay", "eps") and not is_number(value):
            raise OptionError(f"{origin}: optimizer.params.{key} is {value!r}; give a number.")
        pair = isinstance(value, list) and len(value) == 2 and all(map(is_number, value))
        if key == "betas" and not pair:
            raise OptionError(f"{origin}: optimizer.params.betas is {value!r}; give two numbers.")
    if settings.optimizer == "muon" and kind != "muon":
        raise OptionError(
            f"{origin}: optimizer.type is {written}, but the options say --optimizer muon; "
            "keep one."
        )


def _known_params(
    kind: str, written: str, params: Mapping[str, Any], origin: str
) -> tuple[str, ...]:
    """The parameters that an optimizer takes; DeepSpeed's own, but Adam and Muon, check theirs."""
    import torch

    if kind in (*ADAM, "muon"):
        return _MUON_PARAMS if kind == "muon" else _ADAM_PARAMS
    if kind in _WITH_MUP and find_spec("mup") is None:
        raise OptionError(f"{origin}: optimizer.type {written} needs mup: pip install mup.")
    if kind in _DEEPSPEED_OWN:
        return tuple(params)
    torch_types = {n for n, c in vars(torch.optim).items() if inspect.isclass(c)} - {"Optimizer"}
    if written in torch_types:
        return tuple(inspect.signature(getattr(torch.optim, written)).parameters)[1:]
    types = ("Adam", "AdamW", "Muon", *map(str.title, _DEEPSPEED_OWN), *torch_types)
    raise unknown(written, types, origin, "optimizer.type")


def scheduler_class(written: str, origin: str) -> Any:
    """The class that DeepSpeed makes of ``scheduler.type``.

    Raises:
        OptionError: neither DeepSpeed nor torch has such a schedule.
    """
    import torch
    from deepspeed.runtime import lr_schedules

    if written in lr_schedules.VALID_LR_SCHEDULES:
        return getattr(lr_schedules, written)
    torch_types = [n for n in dir(torch.optim.lr_scheduler) if n.endswith(("LR", "Restarts"))]
    if written in torch_types:
        return getattr(torch.optim.lr_scheduler, written)
    raise unknown(
        written, (*lr_schedules.VALID_LR_SCHEDULES, *torch_types), origin, "scheduler.type"
    )


def check_scheduler_section(
    config: Mapping[str, Any], settings: TrainSettings, origin: str
) -> None:
    """Refuses a schedule that is unknown, short of a value, or at odds with the options.

    Raises:
        OptionError: names the key, and the option where one contradicts.
    """
    if "scheduler" not in config:
        return
    written = str(config["scheduler"].get("type", ""))
    known = dict(list(inspect.signature(scheduler_class(written, origin)).parameters.items())[1:])
    params = section(config["scheduler"], "params")
    for key, value in params.items():
        if key not in known:
            raise unknown(key, known, origin, "scheduler.params")
        if value == "auto" and key not in _AUTO_SCHEDULE:
            raise OptionError(f'{origin}: scheduler.params.{key} is "auto": give a value.')
    needed = [n for n, p in known.items() if p.default is p.empty and n not in params]
    if needed:
        raise OptionError(f"{origin}: scheduler.params.{needed[0]} is missing ({written}).")
    standard = TrainSettings()
    for name, key in (("warmup", "warmup_num_steps"), ("min_lr_ratio", "cos_min_ratio")):
        value = getattr(settings, name)
        if value != getattr(standard, name) and params.get(key) != "auto":
            raise OptionError(
                f"{origin}: scheduler decides the learning rate, but the options say "
                f"{option_of(name)} {value}; keep one."
            )
    if settings.optimizer == "muon" and written != "WarmupCosineLR":
        raise OptionError(
            f"{origin}: scheduler {written} gives Muon's matrices and AdamW's one rate; use "
            "WarmupCosineLR, which scales both, or leave the section out."
        )
    bounded = settings.max_steps or settings.epochs or not settings.max_minutes
    if not bounded and any(params.get(k) == "auto" for k in _NEEDS_TOTAL):
        raise OptionError(
            f'{origin}: scheduler.params has "auto" steps, but only --max-minutes ends the run; '
            "give --max-steps or --epochs as well, or numbers in the file."
        )


_NEEDS_TOTAL = ("total_num_steps", "warmup_num_steps")
_AUTO_SCHEDULE = (*_NEEDS_TOTAL, "warmup_min_lr", "warmup_max_lr", "warmup_min_ratio",
                  "cos_min_ratio")  # fmt: skip


def complete_scheduler(
    config: dict[str, Any], settings: TrainSettings, total_steps: int | None
) -> dict[str, Any]:
    """The config with its scheduler's "auto" replaced, now that the run's length is known."""
    params = section(section(config, "scheduler"), "params")
    if "auto" not in params.values():
        return config
    total = total_steps or 0  # only a run without "auto" steps may have no last step
    values = {
        "total_num_steps": total,
        "warmup_num_steps": max(1, math.ceil(settings.warmup * total)),
        "warmup_min_lr": 0.0,
        "warmup_max_lr": settings.learning_rate,
        "warmup_min_ratio": 0.0,
        "cos_min_ratio": settings.min_lr_ratio,
    }
    whole = {key: values[key] if value == "auto" else value for key, value in params.items()}
    return {**config, "scheduler": {**config["scheduler"], "params": whole}}
