"""``vtrim train-draft``: an EAGLE-3 draft for the run's vocabulary, under DeepSpeed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vtrim.cli import common
from vtrim.cli.train_options import with_settings


@with_settings
def train_draft(
    run: common.RunOption = None,
    target: common.TargetOption = None,
    vocab: Annotated[
        str | None,
        typer.Option(
            help="vocab.safetensors, 'full', or 'draft': that of --init-from (default: the run's)."
        ),
    ] = None,
    init_from: Annotated[
        Path | None, typer.Option(help="A draft folder to go on from instead of a fresh draft.")
    ] = None,
    mix: Annotated[
        list[str] | None,
        typer.Option(help="SOURCE=WEIGHT: how often its samples come in a pass (default: once)."),
    ] = None,
    num_gpus: Annotated[
        int | None,
        typer.Option("--num-gpus", min=1, help="Processes: GPUs, or CPU ranks without one."),
    ] = None,
    hostfile: Annotated[
        Path | None, typer.Option(help="DeepSpeed hostfile: one line a machine, 'HOST slots=N'.")
    ] = None,
    master_addr: Annotated[
        str | None, typer.Option(help="Where processes find the first (default: its machine).")
    ] = None,
    master_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Its port (default: 29500, or a free one).")
    ] = None,
    cache_features: Annotated[
        Path | None,
        typer.Option(help="Folder of target states on disk: written once, read ever after."),
    ] = None,
    aux_layers: Annotated[
        str | None, typer.Option(help="Three hidden_states indices, e.g. 2,15,27.")
    ] = None,
    draft_config: Annotated[
        Path | None, typer.Option(help="JSON of draft dimensions that differ from the target's.")
    ] = None,
    deepspeed_config: Annotated[
        Path | None, typer.Option(help="Your ds_config.json; checked, then honoured.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print parameters, FLOPs, memory, disk, time; stop.")
    ] = False,
    restart: Annotated[bool, typer.Option(help="Throw this run's checkpoints away.")] = False,
    device: common.DeviceOption = None,
    offline: common.OfflineOption = False,
    as_json: common.JsonOption = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Train an EAGLE-3 draft with the run's vocabulary; the same line resumes after a stop.

    Writes draft/ (config.json, model.safetensors, model card: vLLM and SGLang load it as it is)
    and train/metrics.jsonl.

    Example: vtrim train-draft --max-minutes 5 --num-gpus 2
    """
    from vtrim.cli.train_call import TrainCall
    from vtrim.cli.train_launch import plan_launch, train_through_launcher
    from vtrim.cli.train_steps import train_in_group
    from vtrim.training.launch import is_launched
    from vtrim.training.signals import interruptible

    launch = plan_launch(num_gpus, hostfile, master_addr, master_port)
    call = TrainCall(
        settings=settings,
        run=common.open_run(run),
        target=target,
        vocab=vocab,
        init_from=init_from,
        mix=tuple(mix or ()),
        cache_features=cache_features,
        aux_layers=aux_layers,
        draft_config=draft_config,
        deepspeed_config=deepspeed_config,
        processes=launch.processes,
        restart=restart,
        device=device,
        offline=offline,
    )
    if plan:
        from vtrim.cli.train_plan import plan_run, show_plan

        planned = plan_run(call)
        common.emit_json(planned) if as_json else show_plan(planned)
        return
    several = (launch.processes > 1 or hostfile is not None) and not is_launched()
    with interruptible():  # until loop or launcher take over, SIGTERM ends it as Ctrl-C does
        result = train_through_launcher(call, launch) if several else train_in_group(call)
    if result is not None:
        common.emit_json(result) if as_json else _show(result)


def _show(result: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table("training", "", title="Draft trained", show_header=False)
    prefix = result["heldout_joint_prefix"]
    for name, value in (
        ("steps", f"{result['steps']:,}"),
        ("reply tokens seen", f"{result['tokens']:,}"),
        ("reply tokens a second", f"{result['tokens_per_second']:,}"),
        ("held-out joint prefix", "no held-out data" if prefix is None else f"{prefix:.3f}"),
        ("teacher arg-max outside D", _percent(result["oov_share"])),
        ("draft", result["artifact"]),
    ):
        table.add_row(name, str(value))
    common.results.print(table)


def _percent(share: float | None) -> str:
    return "no held-out data" if share is None else f"{100 * share:.2f} %"
