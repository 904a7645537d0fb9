"""Values of a user's DeepSpeed config, checked by kind or tried on one number before any model."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from vtrim.errors import OptionError
from vtrim.training.ds_schema import unknown
from vtrim.training.ds_sections import (
    complete_scheduler,
    is_number,
    optimizer_kind,
    scheduler_class,
    section,
)
from vtrim.training.optimizer import adam_of
from vtrim.training.settings import TrainSettings

_STEPS = 1000  # length of the run that "auto" means in the trial


_FLAGS = (
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "prescale_gradients",
    "memory_breakdown",
    "dump_state",
    "disable_allgather",
    "disable_python_gc",
)
_DTYPES = ("fp32", "bf16", "fp16")


def check_kinds(user: Mapping[str, Any], origin: str) -> None:
    """Refuses plain keys, ``enabled`` and dtypes whose value is of another kind than DeepSpeed's.

    Raises:
        OptionError: names the key and what may stand there.
    """
    for name, value in (*_switches(user), *((key, user.get(key, False)) for key in _FLAGS)):
        if not isinstance(value, bool) and value != "auto":
            raise OptionError(f"{origin}: {name} is {value!r}; give true or false.")
    for name, whole in (("steps_per_print", True), ("gradient_predivide_factor", False)):
        value = user.get(name, 1)
        fits = is_number(value) and value > 0 and (isinstance(value, int) or not whole)
        if not fits and value != "auto":
            kind = "a whole number from 1" if whole else "a number above 0"
            raise OptionError(f"{origin}: {name} is {value!r}; give {kind}.")
    types = section(user, "data_types")
    for key in ("grad_accum_dtype", "param_dtype", "buffer_dtype"):
        value = types.get(key)
        if value is not None and value not in (*_DTYPES, "auto"):
            raise OptionError(
                f"{origin}: data_types.{key} is {value!r}; give one of {', '.join(_DTYPES)}."
            )
    value = user.get("communication_data_type")
    if value is not None and value not in (*_DTYPES, "auto"):
        raise OptionError(
            f"{origin}: communication_data_type is {value!r}; give one of {', '.join(_DTYPES)}."
        )


def _switches(user: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every ``enabled`` in the config: its name and value."""
    for key, value in user.items():
        if isinstance(value, dict):
            yield from _switches(value, f"{path}{key}.")
        elif key == "enabled":
            yield f"{path}{key}", value


def try_sections(config: dict[str, Any], settings: TrainSettings, origin: str) -> None:
    """Refuses values that optimizer and scheduler do not take.

    Raises:
        OptionError: names the section and what torch or DeepSpeed says of it.
    """
    import torch

    summed = section(config, "data_types").get("grad_accum_dtype")
    if not config["zero_optimization"].get("stage") and summed not in (None, settings.dtype):
        raise OptionError(
            f"{origin}: data_types.grad_accum_dtype is {summed}, but stage 0 sums gradients in the "
            f"run's own dtype, {settings.dtype}. Leave it out, or use stage 1."
        )
    one = torch.nn.Parameter(torch.zeros(1))
    with _told(f"{origin}: optimizer.params"):
        optimizer = _optimizer(one, config, settings, origin)
    if "scheduler" not in config:
        return
    made = scheduler_class(str(config["scheduler"]["type"]), origin)
    _check_torch_scheduler(made, config, settings, origin)
    params = complete_scheduler(config, settings, _STEPS)["scheduler"].get("params", {})
    with _told(f"{origin}: scheduler.params"):
        scheduler = made(optimizer, **params)
        optimizer.step()
        scheduler.step()


def _optimizer(one: Any, config: Mapping[str, Any], settings: TrainSettings, origin: str) -> Any:
    """The optimizer for ``one``; AdamW in place of one that needs a compiler or tagged matrices."""
    import torch

    kind, written = optimizer_kind(config), section(config, "optimizer")
    params = section(written, "params")
    found = getattr(torch.optim, str(written.get("type", "")), None)
    if kind in ("", "adam", "adamw", "muon"):
        if not is_number(params.get("momentum", 0)):
            raise ValueError(f"momentum is {params['momentum']!r}, no number")
        return adam_of([one], settings, written)
    own = _deepspeed_class(kind)
    if own is not None:
        _check_own(own, params, origin)
    elif found is not None:
        return found([one], **{"lr": settings.learning_rate, **params})
    return adam_of([one], settings, {})


def _deepspeed_class(kind: str) -> Any:
    """DeepSpeed's optimizer of that type, None where it has none of its own."""
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
    from deepspeed.ops.lamb import FusedLamb
    from deepspeed.ops.lion import FusedLion

    return {"lamb": FusedLamb, "lion": FusedLion, "adagrad": DeepSpeedCPUAdagrad}.get(kind)


def _check_own(made: Any, params: Mapping[str, Any], origin: str) -> None:
    """Checks keys and kinds of values against the signature: to build it would take a compiler."""
    known = dict(list(inspect.signature(made).parameters.items())[1:])
    for key, value in params.items():
        if key not in known:
            raise unknown(key, known, origin, "optimizer.params")
        default = known[key].default
        fits = isinstance(value, bool) if isinstance(default, bool) else is_number(value)
        if not fits and not isinstance(default, tuple):
            raise ValueError(f"{key} is {value!r}, not of the kind of {default!r}")


def _check_torch_scheduler(
    made: Any, config: Mapping[str, Any], settings: TrainSettings, origin: str
) -> None:
    """Refuses torch's schedulers where DeepSpeed wraps the optimizer: they take torch's."""
    if not made.__module__.startswith("torch."):
        return
    stage = int(config["zero_optimization"].get("stage", 0))
    if stage >= 1 or settings.dtype == "bf16":
        raise OptionError(
            f"{origin}: scheduler.type {config['scheduler']['type']} is torch's, which DeepSpeed "
            f"takes with stage 0 and fp32 only (stage {stage}, {settings.dtype} here). Use "
            "WarmupLR, WarmupDecayLR or WarmupCosineLR, or leave the section out."
        )


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Turns what torch and DeepSpeed raise for a value into one line about ``where``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an optimizer that is tried without a gradient
            yield
    except (TypeError, ValueError, AssertionError, ArithmeticError, RuntimeError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise OptionError(f"{where}: {said}.".replace("..", ".")) from error
