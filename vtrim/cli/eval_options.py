"""The options that commands share which decode and judge: ``vtrim eval`` and ``vtrim sweep``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_DROPMATCH = "only with --acceptor dropmatch"
_DRAFTING, _ACCEPTING, _TEXTS, _MACHINE = "Drafting", "Accepting", "Prompts", "Machine"
_ENGINE = "Engine"

Draft = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the draft (default: the run's draft/).", rich_help_panel=_DRAFTING
    ),
]
Drafter = Annotated[
    str | None,
    typer.Option(
        help="eagle (a chain), tree, model (a second model) or ngram (what followed like "
        "tokens earlier); the last two need no draft (default: eagle).",
        rich_help_panel=_DRAFTING,
    ),
]
Tree = Annotated[
    str | None,
    typer.Option(
        metavar="TOTAL,DEPTH,TOPK",
        help="Rows verified, drafting steps behind the first, branches; implies --drafter tree "
        "(default: 60,6,10 on a GPU, 16,3,4 on a CPU).",
        rich_help_panel=_DRAFTING,
    ),
]
FallbackChain = Annotated[
    bool,
    typer.Option(
        "--fallback-chain",
        help="Draft a chain where the target's attention takes no tree.",
        rich_help_panel=_DRAFTING,
    ),
]
DraftModel = Annotated[
    str | None,
    typer.Option(
        help="Second model of the same tokenizer, hub id or folder; implies --drafter model.",
        rich_help_panel=_DRAFTING,
    ),
]
SkipLayers = Annotated[
    str | None,
    typer.Option(
        metavar="LAYERS",
        help="Blocks that the second model leaves out, e.g. 10-17 or 3,5,10-12; without "
        "--draft-model it is the target itself.",
        rich_help_panel=_DRAFTING,
    ),
]
DraftVocabFile = Annotated[
    Path | None,
    typer.Option(
        help="vocab.safetensors to trim the second model's head to.", rich_help_panel=_DRAFTING
    ),
]
MaxNgram = Annotated[
    int | None,
    typer.Option(help="Longest run of tokens looked up, ngram only.", rich_help_panel=_DRAFTING),
]
MinConfidence = Annotated[
    float | None,
    typer.Option(
        help="Draft no further behind a token less likely than this, eagle and model only.",
        rich_help_panel=_DRAFTING,
    ),
]
NumDraftTokens = Annotated[
    str | None,
    typer.Option(
        metavar="N|auto",
        help="Tokens drafted a round (L); auto follows measured times and acceptance, at most 8 "
        "(default: 3; a tree's own depth).",
        rich_help_panel=_DRAFTING,
    ),
]
AcceptorName = Annotated[
    str | None,
    typer.Option(
        help="greedy, rejection (both exact), typical, relaxed, mars, fsd-js (needs --knob "
        "threshold=0.1), cactus (needs --knob delta=0.5) or dropmatch (default: greedy at "
        "temperature 0, else rejection).",
        rich_help_panel=_ACCEPTING,
    ),
]
Heads = Annotated[
    int | None,
    typer.Option(help=f"Dropout heads K, {_DROPMATCH} (default: 5).", rich_help_panel=_ACCEPTING),
]
PDrop = Annotated[
    str | None,
    typer.Option(
        metavar="P|auto",
        help=f"Share of dropped units, {_DROPMATCH}; auto fits it to the target's heads "
        "(default: 0.3, the paper's).",
        rich_help_panel=_ACCEPTING,
    ),
]
Criterion = Annotated[
    str | None,
    typer.Option(
        help=f"full, js, majority or naive, {_DROPMATCH} (default: full; naive for trees).",
        rich_help_panel=_ACCEPTING,
    ),
]
Correction = Annotated[
    str | None,
    typer.Option(
        help="Token after a rejection: sample, argmax, centroid or residual.",
        rich_help_panel=_ACCEPTING,
    ),
]
Knob = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="Any option of the rule, repeatable, e.g. --knob delta=0.3.",
        rich_help_panel=_ACCEPTING,
    ),
]
Temperature = Annotated[float, typer.Option(help="0 is greedy.", rich_help_panel=_ACCEPTING)]
TopK = Annotated[
    int,
    typer.Option(help="Sample among the K likeliest (0: all).", rich_help_panel=_ACCEPTING),
]
TopP = Annotated[
    float,
    typer.Option(
        help="Sample among the likeliest that hold this mass (1: all).",
        rich_help_panel=_ACCEPTING,
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Of every random draw.", rich_help_panel=_ACCEPTING)]
Prompts = Annotated[
    Path | None,
    typer.Option(
        help="Chat file, or rows with `prompt` (raw), `question`, `instruction` or `turns` "
        "(default: held-out rows).",
        rich_help_panel=_TEXTS,
    ),
]
NumPrompts = Annotated[int, typer.Option(min=1, help="Prompts at most.", rich_help_panel=_TEXTS)]
MaxNewTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Longest reply (tokens; default: 128, a task's own).",
        rich_help_panel=_TEXTS,
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEXT", help="Text that ends a reply, repeatable.", rich_help_panel=_TEXTS
    ),
]
Task = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[:N]",
        help="A benchmark in place of --prompts, N questions of it, each part in turn (default: "
        "--num-prompts), repeatable, e.g. --task gsm8k --task mt-bench:40; replies are scored "
        "where it has a scorer. `vtrim tasks` lists them.",
        rich_help_panel=_TEXTS,
    ),
]
TaskData = Annotated[
    Path | None,
    typer.Option(
        help="File or folder that holds the tasks' data (default: installed packages, then the "
        "hub).",
        rich_help_panel=_TEXTS,
    ),
]
AllowCodeExecution = Annotated[
    bool,
    typer.Option(
        "--allow-code-execution",
        help="Let HumanEval run what the model wrote, in a separate process with limits.",
        rich_help_panel=_TEXTS,
    ),
]
Repeats = Annotated[
    int,
    typer.Option(
        min=1,
        help="Measure all prompts N times, the rules' order turned each time.",
        rich_help_panel=_MACHINE,
    ),
]
EngineName = Annotated[
    str,
    typer.Option(
        help="What decodes: local (vtrim), vllm, or openai (any OpenAI-compatible server).",
        rich_help_panel=_ENGINE,
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        help="Address of a running server with the draft: http://HOST:PORT.",
        rich_help_panel=_ENGINE,
    ),
]
PlainServer = Annotated[
    str | None,
    typer.Option(
        help="Address of the same server without a draft, for the speed-up.",
        rich_help_panel=_ENGINE,
    ),
]
ServerModel = Annotated[
    str | None,
    typer.Option(help="Of the server's models (default: the only one).", rich_help_panel=_ENGINE),
]
EnginePython = Annotated[
    Path | None,
    typer.Option(
        help="Python of the environment that has vLLM (default: this one).",
        rich_help_panel=_ENGINE,
    ),
]
RequestTimeout = Annotated[
    float,
    typer.Option(
        help="Seconds without a byte from the engine before it is given up.",
        rich_help_panel=_ENGINE,
    ),
]
BatchSize = Annotated[
    int, typer.Option(min=1, help="Prompts decoded together.", rich_help_panel=_MACHINE)
]
Dtype = Annotated[str, typer.Option(help="auto, bf16, fp32 or fp16.", rich_help_panel=_MACHINE)]
Threads = Annotated[int, typer.Option(min=1, help="CPU threads.", rich_help_panel=_MACHINE)]
FastForward = Annotated[
    bool,
    typer.Option(
        "--fast-forward/--no-fast-forward",
        help="Own forward pass where it proves equal at load, or transformers' always.",
        rich_help_panel=_MACHINE,
    ),
]
