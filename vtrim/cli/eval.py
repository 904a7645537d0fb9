"""``vtrim eval``: speculative decoding with the run's draft, measured against plain decoding."""

from __future__ import annotations

from typing import Annotated

import typer

from vtrim.cli import common
from vtrim.cli import eval_options as opt
from vtrim.cli.eval_call import EvalCall
from vtrim.cli.eval_engine import run_engine
from vtrim.cli.eval_engine_table import show_engine
from vtrim.cli.eval_steps import run_eval
from vtrim.cli.eval_table import show
from vtrim.cli.eval_values import LOCAL


def evaluate(
    run: common.RunOption = None,
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
    heads: opt.Heads = None,
    p_drop: opt.PDrop = None,
    criterion: opt.Criterion = None,
    correction: opt.Correction = None,
    knob: opt.Knob = None,
    diagnose: Annotated[
        bool,
        typer.Option(
            "--diagnose",
            help="Measure what the paper's Tables 1-4 do, only with --acceptor dropmatch.",
            rich_help_panel="Accepting",
        ),
    ] = False,
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
    repeats: opt.Repeats = 1,
    engine: opt.EngineName = "local",
    server: opt.Server = None,
    plain_server: opt.PlainServer = None,
    server_model: opt.ServerModel = None,
    engine_python: opt.EnginePython = None,
    request_timeout: opt.RequestTimeout = 600.0,
    batch_size: opt.BatchSize = 1,
    dtype: opt.Dtype = "auto",
    device: common.DeviceOption = None,
    threads: opt.Threads = 1,
    fast_forward: opt.FastForward = True,
    revision: common.RevisionOption = None,
    trust_remote_code: common.TrustOption = False,
    offline: common.OfflineOption = False,
    name: Annotated[
        str | None,
        typer.Option(
            help="Writes eval/NAME.json, over an earlier one (default: RULE, then -DRAFTER, "
            "-ENGINE and -TASK as they are named)."
        ),
    ] = None,
    as_json: common.JsonOption = False,
) -> None:
    """Measure speculative decoding: plain, exact and the chosen rule, alternating in one run.

    Writes eval/NAME.json. Only `greedy` and `rejection` keep the target's output; the price of the
    others is measured too.

    Example: vtrim eval --acceptor dropmatch --p-drop auto
    """
    call = EvalCall.of(common.open_run(run), locals())
    if call.engine == LOCAL:
        result, shown = run_eval(call), show
    else:
        result, shown = run_engine(call), show_engine
    common.emit_json(result) if as_json else shown(result)
