"""``vtrim flops``: what one draft token costs, by component."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtrim.cli import common
from vtrim.errors import OptionError

if TYPE_CHECKING:
    from vtrim.artifacts import Run
    from vtrim.cli.target_config import ModelSource
    from vtrim.shape import DraftShape


def flops(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A config.json, a model folder, a hub id or smollm2. "
            "(default: the run's target, else smollm2)",
            show_default=False,
        ),
    ] = None,
    draft_vocab_size: Annotated[
        int | None,
        typer.Option(
            "--draft-vocab-size",
            "-k",
            help="Rows of its LM head. (default: those of the run's vocabulary, else all)",
        ),
    ] = None,
    context: Annotated[
        int, typer.Option("--context", help="Cached tokens: adds the attention scores.")
    ] = 0,
    recursive: Annotated[
        bool, typer.Option("--recursive", help="A draft step after the first: fc does not run.")
    ] = False,
    tokens: Annotated[
        int, typer.Option("--tokens", help="Tokens of one sequence in one draft step.")
    ] = 1,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Also time target and draft on this machine; loads the target."
        ),
    ] = False,
    num_draft_tokens: Annotated[
        int | None,
        typer.Option(metavar="L", help="--measure: tokens drafted in a round. (default: 3)"),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(help="--measure: timings of each pair of a length and a size. (default: 5)"),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="--measure: CPU threads. (default: 1)")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="--measure: auto, bf16, fp32 or fp16. (default: auto)")
    ] = None,
    device: common.DeviceOption = None,
    run: common.RunOption = None,
    revision: common.RevisionOption = None,
    trust_remote_code: common.TrustOption = False,
    offline: common.OfflineOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Count what one EAGLE-3 draft token costs, and what a smaller vocabulary saves.

    Matrix products only, a multiply-add as 2 FLOPs; bytes are 16-bit weights read once. With
    --measure, the real times of this machine beside them. Examples:

    vtrim flops meta-llama/Llama-3.1-8B-Instruct -k 32000

    vtrim flops --run vtrim-run --measure
    """
    from vtrim.cli.flops_measure import MeasureRequest, measure_times, print_measured
    from vtrim.cli.flops_table import costs, print_costs
    from vtrim.cli.target_config import ModelSource
    from vtrim.flops.cost import DraftStep
    from vtrim.shape import DraftShape

    _at_least("--context", context, 0)
    _at_least("--tokens", tokens, 1)
    timing: dict[str, Any] = {
        "num_draft_tokens": num_draft_tokens,
        "repeats": repeats,
        "threads": threads,
        "dtype": dtype,
        "device": device,
    }
    typed = {name: value for name, value in timing.items() if value is not None}
    if typed and not measure:
        option = next(iter(typed)).replace("_", "-")
        raise OptionError(f"--{option}: only --measure uses it. Leave it out, or add --measure.")
    folder = common.open_run(run)
    named = ModelSource(
        name=model or "", revision=revision, trust_remote_code=trust_remote_code, offline=offline
    )
    source = named if model else _default_source(folder, named, loaded=measure)
    shape = DraftShape.from_target_config(source.config())
    vocab = _vocab(draft_vocab_size, shape, None if model else folder)
    step = DraftStep(recursive=recursive, context=context, num_tokens=tokens)
    result: dict[str, Any] = {"model": source.name, **costs(shape, vocab, step)}
    if measure:
        request = MeasureRequest(source=source, shape=shape, chosen=vocab, context=context, **typed)
        result["measured"] = measure_times(folder, request)
    if json_output:
        common.emit_json(result)
        return
    print_costs(result)
    if measure:
        print_measured(result["measured"], str(folder.step_times))


def _default_source(run: Run, typed: ModelSource, *, loaded: bool) -> ModelSource:
    """The run's target, else the built-in one; its config alone unless it is to be loaded.

    Raises:
        OptionError: there is a run, but it names no model.
    """
    entry = run.read().get("target", {})
    name = entry.get("name", "")
    if name is None or (loaded and not name and run.target_config.exists()):
        raise OptionError(
            f"{run.root}: counted with a tokenizer alone, so it names no model. Name one, as in "
            "`vtrim flops MODEL`."
        )
    if loaded and name:
        return replace(
            typed,
            name=str(name),
            revision=typed.revision or entry.get("revision"),
            trust_remote_code=typed.trust_remote_code or bool(entry.get("trust_remote_code")),
        )
    if run.target_config.exists() and not loaded:
        return replace(typed, name=str(run.target_config))
    common.note("no model named and no run folder here: smollm2, the built-in demo target.")
    return replace(typed, name="smollm2")


def _vocab(asked: int | None, shape: DraftShape, run: Run | None) -> int:
    """Rows of the head: those asked for, else those of the run's vocabulary, else all.

    Raises:
        OptionError: more rows than the target's head has, or none.
    """
    rows = shape.target_vocab_size
    if asked is not None:
        if not 1 <= asked <= rows:
            raise OptionError(
                f"--draft-vocab-size {asked}: must lie between 1 and the {rows} rows of the "
                "target's LM head."
            )
        return asked
    if run is None or not run.vocab.exists():
        return rows
    from vtrim.vocab import DraftVocab

    vocab = DraftVocab.load(run.vocab)
    return vocab.size if vocab.target_vocab_size == rows else rows


def _at_least(option: str, value: int, least: int) -> None:
    if value < least:
        raise OptionError(f"{option} {value}: must be at least {least}.")
