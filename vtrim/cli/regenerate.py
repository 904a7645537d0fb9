"""``vtrim regenerate``: replies of a chat file rewritten by the target, ids and mask recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from vtrim.cli import common
from vtrim.cli.regenerate_rows import Rows, parse_shard
from vtrim.errors import OptionError

LOCAL_ONLY = ("batch_size", "dtype", "device", "threads", "template")
SERVER_ONLY = ("model", "concurrency", "request_timeout")
TARGETS_ONLY = ("revision", "trust_remote_code", "offline")


def regenerate(
    context: typer.Context,
    prompts: Annotated[
        list[Path], typer.Argument(help="Chat files: JSONL, JSON or parquet, also packed.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="OUT.jsonl or OUT.jsonl.gz")],
    target: common.TargetOption = None,
    server: Annotated[
        str | None,
        typer.Option(
            help="An OpenAI-compatible server that has the target: http://HOST:PORT. With "
            "--target its token ids are checked against that tokenizer."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Of the server's models (default: the only one).")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests to the server at once.")] = 32,
    request_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds to wait for the server's answer to a request.")
    ] = 600.0,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest reply, in tokens.")] = 256,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Keep the likeliest tokens up to this share.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws above temperature 0.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows decoded at once.")] = 64,
    num_prompts: Annotated[
        int | None, typer.Option(min=1, help="Only the first N rows (default: all).")
    ] = None,
    shard: Annotated[
        str, typer.Option(help="i/n: every n-th row from the i-th, for n processes.")
    ] = "1/1",
    dtype: Annotated[str, typer.Option(help="auto, bf16, fp32 or fp16.")] = "auto",
    device: common.DeviceOption = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of this process.")] = 1,
    revision: common.RevisionOption = None,
    trust_remote_code: common.TrustOption = False,
    offline: common.OfflineOption = False,
    template: common.TemplateOption = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Count unreadable lines instead of stopping.")
    ] = False,
    json_output: common.JsonOption = False,
) -> None:
    """Let the target write the replies: the best data to choose a vocabulary and train a draft on.

    The reply of each row (its last assistant turn, or the answer to its last user turn) is
    generated here in batches, or by a server (vLLM, SGLang, llama.cpp, TGI; $OPENAI_API_KEY is sent
    if set). Interrupt it at will: the same command goes on where it stopped.
    """
    check_options(
        {name: value for name, value in context.params.items() if _is_typed(context, name)}
    )
    if output.exists():
        raise OptionError(f"{output}: exists already. Delete it or choose another --output.")
    from vtrim.chat.skips import SkipLog

    rows = Rows(prompts, skip_bad_rows, num_prompts, parse_shard(shard), SkipLog())
    law = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "seed": seed,
    }
    if server is not None:
        from vtrim.cli.regenerate_server import ServerCall, answer_by_server

        call = ServerCall(url=server, model=model, concurrency=concurrency, timeout=request_timeout)
        tokenizer = None
        if target is not None:
            from vtrim.models.hub import load_tokenizer

            common.hush_libraries()
            tokenizer = load_tokenizer(
                target, revision=revision, trust_remote_code=trust_remote_code, offline=offline
            )
        result = answer_by_server(rows, output, call, law, tokenizer)
    else:
        from vtrim.cli.regenerate_local import LocalTarget, answer_locally

        local = LocalTarget(
            target=target,
            revision=revision,
            trust_remote_code=trust_remote_code,
            offline=offline,
            template=template,
            dtype=dtype,
            device=device,
            threads=threads,
            batch_size=batch_size,
        )
        result = answer_locally(rows, output, local, law)
    common.emit_json(result) if json_output else _show(result)


def check_options(typed: Mapping[str, Any]) -> None:
    """Refuses numbers that the ranges of the options let through, and options of the other side.

    typed: the options that were typed, by name.

    Raises:
        OptionError: names the first of them.
    """
    top_p, server = typed.get("top_p", 1.0), typed.get("server")
    if not 0 < top_p <= 1:
        raise OptionError(f"--top-p {top_p}: must be above 0 and at most 1.")
    for name in ("temperature", "request_timeout"):
        if not math.isfinite(typed.get(name, 0.0)):
            raise OptionError(f"{_flag(name)} {typed[name]}: must be a number.")
    unused = dict.fromkeys(SERVER_ONLY, "it needs --server URL")
    if server is not None:
        from vtrim.decoding.http_json import base_url

        base_url(server)
        unused = dict.fromkeys(LOCAL_ONLY, "the server has its own")
        if typed.get("target") is None:
            unused |= dict.fromkeys(TARGETS_ONLY, "it needs --target")
    for name, reason in unused.items():
        if name in typed:
            raise OptionError(f"{_flag(name)}: has no effect here ({reason}). Leave it out.")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _show(result: dict[str, Any]) -> None:
    """Prints the result as a person reads it."""
    from rich.table import Table

    table = Table("replies of the target", "", show_header=True)
    table.add_row("rows written", f"{result['rows']:,}")
    table.add_row("of which finished before", f"{result['rows_resumed']:,}")
    if "rows_with_token_ids" in result:
        table.add_row("of which with token ids", f"{result['rows_with_token_ids']:,}")
    table.add_row("rows skipped", f"{sum(result['rows_skipped'].values()):,}")
    table.add_row("reply tokens, now", f"{result['reply_tokens']:,}")
    if result["stopped_share"] is not None:
        table.add_row("ended with a stop token, now", f"{result['stopped_share']:.1%}")
    table.add_row("tokens per second", f"{result['tokens_per_second']:.0f}")
    common.results.print(table)
    # never wrapped, so that the path can be copied
    common.results.print(f"written to {result['artifact']}", markup=False, soft_wrap=True)
