"""``vtrim eval``: speculative decoding with the run's draft, measured against plain decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vtrim.cli import common
from vtrim.cli.eval_steps import EvalCall, run_eval
from vtrim.cli.eval_table import show

_DROPMATCH = "only with --acceptor dropmatch"


def evaluate(
    run: common.RunOption = None,
    draft: Annotated[
        Path | None, typer.Option(help="Folder of the draft (default: the run's draft/).")
    ] = None,
    target: common.TargetOption = None,
    acceptor: Annotated[
        str | None,
        typer.Option(
            help="greedy, rejection or dropmatch (default: greedy at temperature 0, else "
            "rejection)."
        ),
    ] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    num_draft_tokens: Annotated[int, typer.Option(min=1, help="Tokens drafted a round (L).")] = 3,
    heads: Annotated[
        int | None, typer.Option(help=f"Dropout heads K, {_DROPMATCH} (default: 5).")
    ] = None,
    p_drop: Annotated[
        float | None, typer.Option(help=f"Share of dropped units, {_DROPMATCH} (default: 0.3).")
    ] = None,
    criterion: Annotated[
        str | None,
        typer.Option(help=f"full, js, majority or naive, {_DROPMATCH} (default: full)."),
    ] = None,
    correction: Annotated[
        str | None,
        typer.Option(help="Token after a rejection: sample, argmax, centroid or residual."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of every random draw.")] = 0,
    prompts: Annotated[
        Path | None,
        typer.Option(
            help="Chat file, or rows with `prompt` (raw), `question`, `instruction` or `turns` "
            "(default: held-out rows)."
        ),
    ] = None,
    num_prompts: Annotated[int, typer.Option(min=1, help="Prompts at most.")] = 20,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest reply (tokens).")] = 128,
    dtype: Annotated[str, typer.Option(help="auto, bf16, fp32 or fp16.")] = "auto",
    device: common.DeviceOption = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    revision: common.RevisionOption = None,
    trust_remote_code: common.TrustOption = False,
    offline: common.OfflineOption = False,
    name: Annotated[
        str | None, typer.Option(help="Writes eval/NAME.json (default: the acceptor's name).")
    ] = None,
    as_json: common.JsonOption = False,
) -> None:
    """Measure speculative decoding: plain, exact and the chosen rule, alternating in one run.

    Writes eval/NAME.json. `greedy` and `rejection` keep the target's output; `dropmatch` does not.

    Example: vtrim eval --acceptor dropmatch --p-drop 0.05
    """
    rule = {"heads": heads, "p_drop": p_drop, "criterion": criterion, "correction": correction}
    call = EvalCall(
        run=common.open_run(run),
        draft=draft,
        target=target,
        acceptor=acceptor or ("greedy" if temperature == 0 else "rejection"),
        options={option: value for option, value in rule.items() if value is not None},
        temperature=temperature,
        num_draft_tokens=num_draft_tokens,
        seed=seed,
        prompts=prompts,
        num_prompts=num_prompts,
        max_new_tokens=max_new_tokens,
        dtype=dtype,
        device=device,
        threads=threads,
        revision=revision,
        trust_remote_code=trust_remote_code,
        offline=offline,
        name=name,
    )
    result = run_eval(call)
    common.emit_json(result) if as_json else show(result)
