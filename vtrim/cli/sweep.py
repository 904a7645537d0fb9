"""``vtrim sweep``: many settings of a rule of acceptance, measured one by one."""

from __future__ import annotations

from typing import Annotated

import typer

from vtrim.cli import common
from vtrim.cli import eval_options as opt
from vtrim.cli.sweep_call import SweepCall
from vtrim.cli.sweep_steps import run_sweep
from vtrim.cli.sweep_table import show


def sweep(
    run: common.RunOption = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUES",
            help="An option of the rule or num_draft_tokens: values (p_drop=0.05,0.1,auto) or a "
            "range for --sampler tpe (p_drop=0.01..0.3), repeatable; one value holds it fixed.",
        ),
    ] = None,
    sampler: Annotated[
        str, typer.Option(help="grid (every combination) or tpe (Optuna's choice).")
    ] = "grid",
    trials: Annotated[
        int | None, typer.Option(min=1, help="Points in all, only with --sampler tpe.")
    ] = None,
    target: common.TargetOption = None,
    drafter: opt.Drafter = None,
    draft: opt.Draft = None,
    num_draft_tokens: opt.NumDraftTokens = None,
    tree: opt.Tree = None,
    fallback_chain: opt.FallbackChain = False,
    min_confidence: opt.MinConfidence = None,
    draft_model: opt.DraftModel = None,
    skip_layers: opt.SkipLayers = None,
    draft_vocab: opt.DraftVocabFile = None,
    max_ngram: opt.MaxNgram = None,
    acceptor: opt.AcceptorName = None,
    temperature: opt.Temperature = 0.0,
    top_k: opt.TopK = 0,
    top_p: opt.TopP = 1.0,
    seed: opt.Seed = 0,
    prompts: opt.Prompts = None,
    task: opt.Task = None,
    task_data: opt.TaskData = None,
    allow_code_execution: opt.AllowCodeExecution = False,
    num_prompts: opt.NumPrompts = 20,
    max_new_tokens: opt.MaxNewTokens = None,
    stop: opt.Stop = None,
    dtype: opt.Dtype = "auto",
    device: common.DeviceOption = None,
    threads: opt.Threads = 1,
    fast_forward: opt.FastForward = True,
    revision: common.RevisionOption = None,
    trust_remote_code: common.TrustOption = False,
    offline: common.OfflineOption = False,
    name: Annotated[
        str | None,
        typer.Option(help="Writes sweep/NAME.jsonl and .html (default: the acceptor's name)."),
    ] = None,
    as_json: common.JsonOption = False,
) -> None:
    """Measure an acceptor at many settings: speed, drift, and score where prompts have answers.

    Finished points are kept: the same call goes on where it was stopped. Each point is measured
    beside plain decoding, the two alternating.

    Example: vtrim sweep --acceptor dropmatch --vary p_drop=0.05,auto --vary criterion=naive,full
    """
    call = SweepCall.of(common.open_run(run), locals(), vary or [], sampler, trials)
    result = run_sweep(call)
    common.emit_json(result) if as_json else show(result)
