"""``vtrim train-draft``: an EAGLE-3 draft for the run's vocabulary, under DeepSpeed."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from vtrim.cli import common
from vtrim.training.settings import RENAMED, TrainSettings

_FIELDS = {field.name: field for field in fields(TrainSettings)}
_SETTING_OF = {option: name for name, option in RENAMED.items()}


def _option(text: str, name: str, *flags: str) -> Any:
    """An option whose default is the library's; the help text reads it from there."""
    default = _FIELDS[name].default
    return typer.Option(*flags, help=f"{text} (default: {'none' if default is None else default})")


def train_draft(
    context: typer.Context,
    run: common.RunOption = None,
    target: common.TargetOption = None,
    vocab: Annotated[
        str | None, typer.Option(help="vocab.safetensors, or 'full' (default: the run's).")
    ] = None,
    max_steps: Annotated[int | None, _option("Stop after so many steps.", "max_steps")] = None,
    max_minutes: Annotated[
        float | None, _option("Stop after so many minutes.", "max_minutes")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the data (default: 1, or until the time is up)")
    ] = None,
    num_gpus: Annotated[
        int, typer.Option("--num-gpus", min=1, help="Processes: GPUs, or CPU ranks without one.")
    ] = 1,
    zero_stage: Annotated[int | None, _option("ZeRO stage, 0 to 3.", "zero_stage")] = None,
    micro_batch: Annotated[int | None, _option("Sequences a forward.", "micro_batch")] = None,
    grad_accum: Annotated[int | None, _option("Forwards a step.", "grad_accum")] = None,
    optimizer: Annotated[str | None, _option("adamw or muon.", "optimizer")] = None,
    muon_lr: Annotated[float | None, _option("Peak rate of Muon's matrices.", "muon_lr")] = None,
    lr: Annotated[float | None, _option("Peak learning rate.", "learning_rate", "--lr")] = None,
    warmup: Annotated[float | None, _option("Warm-up, share of the run.", "warmup")] = None,
    weight_decay: Annotated[float | None, _option("AdamW weight decay.", "weight_decay")] = None,
    clip: Annotated[float | None, _option("Gradient norm limit.", "clip")] = None,
    ttt_steps: Annotated[int | None, _option("Unrolled steps, 1 to 9.", "ttt_steps")] = None,
    decay: Annotated[float | None, _option("Loss weight from step to step.", "decay")] = None,
    mask_alignment: Annotated[
        str | None, _option("exact, or eagle (one row early).", "mask_alignment")
    ] = None,
    head: Annotated[str | None, _option("Head start: target, random.", "head_init")] = None,
    max_length: Annotated[int | None, _option("Tokens a sample.", "max_length")] = None,
    dtype: Annotated[str | None, _option("bf16 or fp32.", "dtype")] = None,
    seed: Annotated[int | None, _option("Data order and first weights.", "seed")] = None,
    eval_every: Annotated[int | None, _option("Steps between checks.", "eval_every")] = None,
    eval_samples: Annotated[int | None, _option("Held-out samples.", "eval_samples")] = None,
    save_every: Annotated[int | None, _option("Steps between checkpoints.", "save_every")] = None,
    cache_gib: Annotated[
        float | None, _option("Target states kept in memory, GiB a process.", "cache_gib")
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
    restart: Annotated[bool, typer.Option(help="Throw this run's checkpoints away.")] = False,
    device: common.DeviceOption = None,
    offline: common.OfflineOption = False,
    as_json: common.JsonOption = False,
) -> None:
    """Train an EAGLE-3 draft with the run's vocabulary; the same line resumes after a stop.

    Writes draft/ (config.json, model.safetensors, model card: vLLM and SGLang load it as it is)
    and train/metrics.jsonl.

    Example: vtrim train-draft --max-minutes 5 --num-gpus 2
    """
    del (
        optimizer,
        muon_lr,
        max_steps,
        max_minutes,
        epochs,
        zero_stage,
        micro_batch,
        grad_accum,
        lr,
        warmup,
    )
    del weight_decay, clip, ttt_steps, decay, mask_alignment, head, max_length, dtype, seed
    del eval_every, eval_samples, save_every, cache_gib
    from vtrim.cli.train_call import TrainCall
    from vtrim.cli.train_steps import train_in_group, train_through_launcher
    from vtrim.training.launch import is_launched

    call = TrainCall(
        settings=_chosen(context.params),
        run=common.open_run(run),
        target=target,
        vocab=vocab,
        aux_layers=aux_layers,
        draft_config=draft_config,
        deepspeed_config=deepspeed_config,
        restart=restart,
        device=device,
        offline=offline,
    )
    launch = num_gpus > 1 and not is_launched()
    result = train_through_launcher(call, num_gpus) if launch else train_in_group(call)
    if result is not None:
        common.emit_json(result) if as_json else _show(result)


def _chosen(parameters: dict[str, Any]) -> dict[str, Any]:
    """The run settings that were typed."""
    named = {_SETTING_OF.get(name, name): value for name, value in parameters.items()}
    return {name: value for name, value in named.items() if name in _FIELDS and value is not None}


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
