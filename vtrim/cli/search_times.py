"""Which times the throughput objective of ``vtrim search`` counts with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import Run, fingerprint_json, read_object
from vtrim.cli import common
from vtrim.cli.flops_measure import unsteady_times
from vtrim.cli.search_target import SearchTarget
from vtrim.errors import MismatchError, OptionError
from vtrim.flops.roofline import BYTES_PER_WEIGHT, find_gpu, roofline_times, target_weights
from vtrim.flops.times import StepTimes

if TYPE_CHECKING:
    from vtrim.trimming.settings import SearchSettings

_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


def step_times(
    run: Run, target: SearchTarget, settings: SearchSettings, gpu: str | None
) -> StepTimes:
    """The times of a round: a GPU's roofline where one is named, else those measured in the run.

    Raises:
        OptionError: neither is there, or they do not fit the options.
        MismatchError: another target was measured.
    """
    config = read_object(run.target_config) if target.config is None else target.config
    if gpu is not None:
        return _roofline(target, config, settings, gpu)
    if not run.step_times.exists():
        raise OptionError(
            "--objective throughput needs the times of target and draft: run `vtrim flops "
            "--measure` first, or name a GPU with --gpu."
        )
    if settings.batch != 1:
        raise OptionError(
            f"--batch {settings.batch}: `vtrim flops --measure` times one sequence. Name a GPU "
            "with --gpu for larger batches."
        )
    measured = read_object(run.step_times)
    if measured.get("config_fingerprint") != fingerprint_json(config):
        raise MismatchError(
            f"{run.step_times}: measured for {measured.get('target')}, not for this search's "
            "target. Run `vtrim flops --measure` again."
        )
    times = StepTimes.from_measurement(
        measured, num_draft_tokens=settings.num_draft_tokens, origin=str(run.step_times)
    )
    if unsteady := _unsteady(measured):
        common.warn(f"{run.step_times}: {unsteady}")
    return times


def _unsteady(measured: dict[str, Any]) -> str | None:
    """The warning about times that spread too far; None too where the file tells no spread."""
    try:
        return unsteady_times(measured)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def _roofline(
    target: SearchTarget, config: Mapping[str, Any], settings: SearchSettings, wanted: str
) -> StepTimes:
    name, gpu = find_gpu(wanted)
    nested = config.get("text_config")
    text = nested if isinstance(nested, Mapping) else config
    if any(text.get(key) for key in _EXPERTS):
        raise OptionError(
            "--gpu: the target has experts, and how many of them a verification reads depends on "
            "the text. Measure it: `vtrim flops --measure`."
        )
    size = BYTES_PER_WEIGHT * target_weights(target.shape)
    if size > gpu.memory:
        common.warn(
            f"the target's {size / 1e9:,.0f} GB of weights do not fit into the "
            f"{gpu.memory / 1e9:,.0f} GB of one {name}: the times are of a card that held them."
        )
    return roofline_times(
        target.shape,
        gpu,
        name,
        num_draft_tokens=settings.num_draft_tokens,
        batch=settings.batch,
    )
