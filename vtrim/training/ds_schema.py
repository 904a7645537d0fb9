"""Which keys a DeepSpeed config may have here, and what a section may hold (DeepSpeed's models)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

from vtrim.errors import OptionError, did_you_mean

PLAIN = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "steps_per_print",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "communication_data_type",
    "prescale_gradients",
    "gradient_predivide_factor",
    "memory_breakdown",
    "dump_state",
    "disable_allgather",
    "disable_python_gc",
)
SECTIONS = (
    "zero_optimization",
    "bf16",
    "fp16",
    "optimizer",
    "scheduler",
    "data_types",
    "comms_logger",
    "timers",
    "tensorboard",
    "wandb",
    "csv_monitor",
    "comet",
)
MONITORS = {"tensorboard": "tensorboard", "wandb": "wandb", "comet": "comet_ml"}
"""Monitor sections that need a package of their own, and its name."""

_BATCHES = "vtrim makes the batches itself"
_ONE_DTYPE = "the draft is trained in one dtype, bf16 or fp32 (--dtype)"
_ONE_LAYER = "a draft is one layer on one device"
_GONE = "this DeepSpeed has it no more, or it is for other models"
_OWN_LOOP = "it does not run with vtrim's own loop (`--plan` tells FLOPs and time)"
_CHECKPOINTS = "vtrim writes and names the checkpoints itself"
WITHOUT_EFFECT = {
    "activation_checkpointing": _ONE_LAYER,
    "pipeline": _ONE_LAYER,
    "tensor_parallel": _ONE_LAYER,
    "sequence_parallel_size": _ONE_LAYER,
    "expert_parallel": _ONE_LAYER,
    "use_data_before_expert_parallelism": _ONE_LAYER,
    "amp": _ONE_DTYPE,
    "torch_autocast": _ONE_DTYPE,
    "data_efficiency": _BATCHES,
    "curriculum_learning": _BATCHES,
    "dataloader_drop_last": _BATCHES,
    "managed_gradient_accumulation": _BATCHES,
    "gradient_allreduce_op": "the loss is scaled for DeepSpeed's mean over processes",
    "checkpoint": _CHECKPOINTS,
    "nebula": _CHECKPOINTS,
    "datastates": _CHECKPOINTS,
    "aio": "nothing is offloaded to nvme",
    "autotuning": "the run's own settings are the ones that are trained",
    "elasticity": "a run keeps its number of processes",
    "hybrid_engine": _GONE,
    "weight_quantization": _GONE,
    "progressive_layer_drop": _GONE,
    "compression_training": _GONE,
    "quantize_training": _GONE,
    "sparse_attention": _GONE,
    "sparse_gradients": _GONE,
    "eigenvalue": _GONE,
    "graph_harvesting": _GONE,
    "compile": "the step is not compiled",
    "flops_profiler": _OWN_LOOP,
    "wall_clock_breakdown": _OWN_LOOP,
}
"""Keys DeepSpeed knows that could not do here what they say: refused, unless switched off."""


_FEW = 15  # names that fit into an error line


def unknown(key: str, known: Iterable[str], origin: str, section: str = "") -> OptionError:
    """The refusal of ``key``, with the nearest known one."""
    names = sorted(known)
    hint = did_you_mean(key, names)
    if not hint and len(names) < _FEW:
        hint = f" Known: {', '.join(names)}."
    where = f" in '{section}'" if section else ""
    return OptionError(f"{origin}: '{key}' is no key of a DeepSpeed config{where}.{hint}")


def check_keys(user: dict[str, Any], origin: str) -> dict[str, Any]:
    """The config without the keys that are switched off and could have no effect.

    Raises:
        OptionError: a key is unknown, could have no effect, or is no section where one belongs.
    """
    kept: dict[str, Any] = {}
    for key, value in user.items():
        if key in WITHOUT_EFFECT:
            if not _is_off(value):
                raise OptionError(
                    f"{origin}: '{key}' has no effect here: {WITHOUT_EFFECT[key]}. Leave it out."
                )
            continue
        if key not in PLAIN and key not in SECTIONS:
            raise unknown(key, (*PLAIN, *SECTIONS), origin)
        if key in SECTIONS and not isinstance(value, dict):
            raise OptionError(f"{origin}: '{key}' is {value!r}; it must be an object, {{...}}.")
        kept[key] = value
    return kept


def _is_off(value: Any) -> bool:
    if isinstance(value, dict):
        return value.get("enabled") is False or all(_is_off(v) for v in value.values())
    return value in (None, False, 0, "mean", [])


def check_sections(config: dict[str, Any], origin: str) -> None:
    """Checks every section's keys and values against DeepSpeed's own models.

    Raises:
        OptionError: names the key, and the nearest known one or the rule.
    """
    from deepspeed.comm.config import CommsLoggerConfig
    from deepspeed.monitor.config import CometConfig, CSVConfig, TensorBoardConfig, WandbConfig
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    from deepspeed.utils.config import DeepSpeedThroughputTimerConfig

    models = {
        "zero_optimization": DeepSpeedZeroConfig,
        "bf16": DeepSpeedBF16Config,
        "fp16": DeepSpeedFP16Config,
        "comms_logger": CommsLoggerConfig,
        "tensorboard": TensorBoardConfig,
        "wandb": WandbConfig,
        "csv_monitor": CSVConfig,
        "comet": CometConfig,
    }
    for section, model in models.items():
        if section in config:
            _check_section(model, config[section], section, origin)
    for section, keys in _TABLES.items():
        for key in config.get(section, {}):
            if key not in keys:
                raise unknown(key, keys, origin, section)
    for section in ("optimizer", "scheduler"):
        _check_kind(config.get(section), section, origin)
    if "throughput" in config.get("timers", {}):
        timer = config["timers"]["throughput"]
        _check_section(DeepSpeedThroughputTimerConfig, timer, "timers.throughput", origin)


def _check_kind(value: Any, section: str, origin: str) -> None:
    if value is None:
        return
    if not isinstance(value.get("type"), str):
        raise OptionError(f"{origin}: '{section}' names no \"type\".")
    if not isinstance(value.get("params", {}), dict):
        raise OptionError(f"{origin}: {section}.params must be an object, {{...}}.")


_TABLES = {
    "optimizer": ("type", "params"),
    "scheduler": ("type", "params"),
    "data_types": ("grad_accum_dtype", "param_dtype", "buffer_dtype", "keep_in_fp32_modules"),
    "timers": ("throughput",),
}


def _check_section(model: Any, value: Any, section: str, origin: str) -> None:
    from pydantic import ValidationError

    if not isinstance(value, dict):
        raise OptionError(f"{origin}: '{section}' is {value!r}; it must be an object, {{...}}.")
    try:
        model(**value)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(map(str, (section, *first["loc"])))
        if first["type"] == "extra_forbidden":
            section, _, key = path.rpartition(".")
            raise unknown(key, _keys(model), origin, section) from error
        where = f"{path} is {first['input']!r}" if first["loc"] else section
        raise OptionError(f"{origin}: {where}: {first['msg']}.") from error
    except AssertionError as error:
        raise OptionError(f"{origin}: {section}: {error}") from error


def _keys(model: Any) -> set[str]:
    """All keys of a DeepSpeed model and of the models inside it."""
    from pydantic import BaseModel

    found: set[str] = set()
    for name, field in model.model_fields.items():
        found |= {field.alias or name}
        for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= _keys(kind)
    return found


_STAGE_3 = ("zero_quantized_weights", "zero_quantized_gradients", "zero_hpz_partition_size")


def check_zero(merged: Mapping[str, Any], origin: str) -> None:
    """Refuses ZeRO options of another stage, and those that vtrim's step does not run with.

    Raises:
        OptionError: names the key and the stage.
    """
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    written = merged["zero_optimization"]
    zero = DeepSpeedZeroConfig(**written)
    stage = int(zero.stage)
    for name, needed in (("offload_optimizer", (1, 2, 3)), ("offload_param", (3,))):
        offload = getattr(zero, name)
        device = "none" if offload is None else str(offload.device)
        if device == "nvme":
            raise OptionError(f"{origin}: zero_optimization.{name}.device nvme: use cpu.")
        if device != "none" and stage not in needed:
            stages = " or ".join(map(str, needed))
            raise OptionError(
                f"{origin}: zero_optimization.{name} needs stage {stages}; the stage is {stage}."
            )
    for key, value in written.items():
        if stage < 3 and (key.startswith("stage3_") or (key in _STAGE_3 and value)):
            raise OptionError(
                f"{origin}: zero_optimization.{key} belongs to stage 3; the stage is {stage}."
            )
    for key in ("cpu_offload", "cpu_offload_param", "cpu_offload_use_pin_memory"):
        if written.get(key) is not None:
            new = "offload_param" if key == "cpu_offload_param" else "offload_optimizer"
            raise OptionError(
                f'{origin}: zero_optimization.{key} is out of use: write "{new}": '
                '{"device": "cpu"}.'
            )
    for key, reason in (
        ("zenflow", "vtrim's step does not run with it"),
        ("legacy_stage1", "the checkpoints would not be the ones vtrim reads"),
    ):
        if getattr(zero, key):
            raise OptionError(f"{origin}: zero_optimization.{key}: {reason}; leave it out.")
    if not zero.compute_grad_norm:
        raise OptionError(f"{origin}: zero_optimization.compute_grad_norm must stay true.")


def check_monitors(merged: Mapping[str, Any], origin: str) -> None:
    """Refuses a monitor whose package is not there.

    Raises:
        OptionError: names the section and what to install.
    """
    for name, package in MONITORS.items():
        if merged.get(name, {}).get("enabled") and find_spec(package) is None:
            raise OptionError(
                f"{origin}: {name} is enabled, but not installed: pip install {package}."
            )


def check_by_deepspeed(merged: dict[str, Any], origin: str) -> None:
    """Lets DeepSpeed itself check the rest.

    It multiplies the batch size out itself, for it may not know the number of processes yet.

    Raises:
        OptionError: DeepSpeed's own words.
    """
    from deepspeed.runtime.config import DeepSpeedConfig, DeepSpeedConfigError

    left = ("train_batch_size", "optimizer", "scheduler")
    try:
        DeepSpeedConfig({k: copy.deepcopy(v) for k, v in merged.items() if k not in left})
    except (AssertionError, ValueError, TypeError, DeepSpeedConfigError) as error:
        raise OptionError(f"{origin}: {' '.join(str(error).split())}") from error
