"""``vtrim train-draft --plan``: what a run would cost; no weights of the target are loaded."""

from __future__ import annotations

import os
from collections.abc import Container
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import fingerprint_json, read_json
from vtrim.cli import common
from vtrim.cli.train_call import TrainCall, draft_overrides
from vtrim.cli.train_request import check
from vtrim.errors import InputError

if TYPE_CHECKING:
    from vtrim.training.calibrate import Speed
    from vtrim.training.run_plan import PlannedRun


def plan_run(call: TrainCall) -> dict[str, Any]:
    """Everything that is known of the run before it starts.

    Raises:
        VtrimError: the run itself would be refused.
    """
    check(call, call.processes)
    common.hush_libraries()
    from vtrim.training.ds_config import deepspeed_config
    from vtrim.training.estimate import draft_parameters
    from vtrim.training.store import free_bytes

    run, settings = _planned(call), call.resolved
    hidden = run.shape.hidden_size
    device = common.pick_device(call.device)
    return {
        "settings": settings.to_dict(),
        "deepspeed_config": deepspeed_config(
            settings, call.processes, call.user_config, str(call.deepspeed_config), hidden
        ),
        "processes": call.processes,
        "device": device,
        "draft_vocab_size": run.draft_vocab_size,
        "parameters": draft_parameters(run.shape, run.draft_vocab_size),
        "target_parameters": run.target_parameters,
        "data": {
            **run.counts.to_dict(),
            "heldout": len(run.split.heldout),
            "untrained": run.split.untrained,
            "distinct": len(run.samples),
            "cached": 0 if run.held is None else len(run.samples) - len(run.missing),
        },
        **run.steps,
        "flops": run.flops(),
        "memory": run.memory(device.partition(":")[0]),
        "disk": {**run.disk(), "free": free_bytes(call.cache_features or call.run.root)},
        "target_states": run.states_bytes(run.samples.values()),
        "time": run.seconds(_speed(run, device)),
    }


def _planned(call: TrainCall) -> PlannedRun:
    from vtrim.cli.train_data import training_samples
    from vtrim.shape import DraftShape
    from vtrim.training.data import split_samples
    from vtrim.training.mix import mixed
    from vtrim.training.run_plan import PlannedRun

    settings, config = call.resolved, read_json(call.run.target_config)
    split = split_samples(training_samples(call, common.note), settings.mask_alignment)
    split, _ = mixed(split, call.mix_weights, settings.seed)
    overrides = draft_overrides(call.draft_config) if call.draft_config else {}
    whole = DraftShape.from_target_config(config)
    own = DraftShape.from_target_config(config, overrides)
    return PlannedRun(
        settings=settings,
        processes=call.processes,
        shape=call.start.shape if call.start else own,
        target_shape=whole,
        draft_vocab_size=call.draft_vocab().size,
        target_parameters=_target_parameters(call),
        split=split,
        held=_store(call),
    )


def _store(call: TrainCall) -> Container[object] | None:
    """What the folder of --cache-features holds; refuses one of another target."""
    from vtrim.models.aux_layers import default_aux_layers
    from vtrim.training.store import FeatureStore
    from vtrim.training.target_weights import weights_fingerprint

    folder = call.cache_features
    if folder is None:
        return None
    if not (folder / "manifest.json").exists():
        return ()
    config = read_json(call.run.target_config)
    text = config.get("text_config") or config
    layers = call.aux_layer_ids or default_aux_layers(int(text["num_hidden_layers"]))
    revision = call.manifest["target"].get("revision")
    return FeatureStore(
        folder,
        {
            "target_config": fingerprint_json(config),
            "target_weights": weights_fingerprint(call.target_name, revision=revision),
            "aux_layer_ids": list(layers),
            "dtype": call.resolved.dtype,
        },
    )


def _target_parameters(call: TrainCall) -> int:
    """Parameters of the target, from its config alone."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from vtrim.models.hub import here_only, resolve_model

    entry = call.manifest["target"]
    trust = bool(entry.get("trust_remote_code"))
    try:
        config = AutoConfig.from_pretrained(
            resolve_model(call.target_name),
            revision=entry.get("revision"),
            trust_remote_code=trust,
            local_files_only=here_only(call.target_name, offline=call.offline),
        )
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=trust)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise InputError(f"{call.target_name}: its size cannot be told ({reason})") from error
    return sum(p.numel() for p in model.parameters())


def _speed(run: PlannedRun, device: str) -> Speed:
    """Calibrates on the sample of middle length, on as many threads as training uses."""
    import torch

    from vtrim.training.calibrate import calibrate

    if device == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    by_length = sorted(run.split.train, key=lambda sample: sample.ids.size)
    middle = by_length[len(by_length) // 2]
    common.note("timing the training step on one sample ...")
    return calibrate(run.shape, run.draft_vocab_size, middle, run.settings, device)


def show_plan(found: dict[str, Any]) -> None:
    """The plan as tables."""
    from rich.table import Table

    from vtrim.training.estimate import shown

    for title, rows in (
        ("Run", _run_rows(found)),
        ("Parameters of the draft", {n: f"{v:,}" for n, v in found["parameters"].items()}),
        ("FLOPs of a step", {n: f"{v:.3g}" for n, v in found["flops"].items()}),
        ("Memory of a process", {n: shown(v) for n, v in found["memory"].items()}),
        ("Disk", {n: shown(v) for n, v in found["disk"].items()}),
        ("Settings", {n: str(v) for n, v in found["settings"].items()}),
    ):
        table = Table("", "", title=title, show_header=False, min_width=len(title) + 4)
        for name, value in rows.items():
            table.add_row(name.replace("_", " "), value)
        common.results.print(table)
    common.results.print("DeepSpeed config")
    common.results.print_json(data=found["deepspeed_config"])


def _run_rows(found: dict[str, Any]) -> dict[str, str]:
    data, times, total = found["data"], found["time"], found["total_steps"]
    seconds = times["seconds"]
    return {
        "processes": f"{found['processes']} on {found['device']}",
        "draft vocabulary": f"{found['draft_vocab_size']:,}",
        "parameters of the target": f"{found['target_parameters']:,}",
        "training samples": f"{data['samples']:,} ({data['reply_tokens']:,} reply tokens)",
        "held out": f"{data['heldout']:,}",
        "without a row to train": f"{data['untrained']:,}",
        "target states cached": f"{data['cached']:,} of {data['distinct']:,} samples",
        "steps a pass": f"{found['steps_per_pass']:,}",
        "steps": "bounded by time" if total is None else f"{total:,}",
        "a step": f"{times['draft_step_s']:.3g} s, target {times['target_step_s']:.3g} s",
        "the run": "?" if seconds is None else _duration(seconds),
        "time is": times["assumed"],
    }


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.1f} seconds"
    minutes = seconds / 60
    return f"{minutes:,.1f} minutes" if minutes < 120 else f"{minutes / 60:,.1f} hours"
