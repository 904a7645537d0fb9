"""``vtrim search``: the size of the draft vocabulary, by TPE and exactly (options only)."""

from __future__ import annotations

from typing import Annotated

import typer

from vtrim.cli import common
from vtrim.errors import OptionError


def search(
    objective: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What is best: utility (of arXiv:2603.05210), throughput (tokens per second "
            "expected from measured or roofline times) or budget (fewest rows that cover --cmin).",
        ),
    ] = "utility",
    alpha: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Weight of coverage against saved FLOPs, 0 to 1. (default: 0.6)",
            show_default=False,
        ),
    ] = None,
    cmin: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Least share of reply tokens to cover, 0 to 1. (default: 0.95)",
            show_default=False,
        ),
    ] = None,
    kmin: Annotated[int | None, typer.Option(help="Smallest size tried. (default: 50)")] = None,
    kmax: Annotated[
        int | None,
        typer.Option(help="Largest size tried. (default: 50000, or the tokenizer's size)"),
    ] = None,
    trials: Annotated[
        int,
        typer.Option(help="Sizes that TPE tries; with --storage, this many more in each run."),
    ] = 100,
    seed: Annotated[int, typer.Option(help="Of TPE; the same seed tries the same sizes.")] = 42,
    sampler: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Whose size is written: tpe or exact. Both are shown. (default: tpe; budget has "
            "exact alone)",
        ),
    ] = None,
    preset: Annotated[
        str, typer.Option(help="default, or paper: alpha 0.5 and no floor, as arXiv:2603.05210.")
    ] = "default",
    keep: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="Token id to keep whatever its count; repeatable."),
    ] = None,
    align: Annotated[
        int | None,
        typer.Option(metavar="M", help="Round the size up to a multiple, e.g. 64 or 64 x TP."),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="Optuna storage to go on with: a journal file or e.g. sqlite:///trials.db. "
            "(default: search.journal in the run)",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="throughput: the roofline of a GPU (H100 SXM, A100 80G, L40S, ...) in place of "
            "the times that `vtrim flops --measure` left in the run.",
        ),
    ] = None,
    a0: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="throughput: chance that a drafted token is accepted with a full vocabulary. "
            "(default: 0.75)",
        ),
    ] = None,
    num_draft_tokens: Annotated[
        int | None,
        typer.Option(metavar="L", help="throughput: tokens drafted in a round. (default: 3)"),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(metavar="B", help="throughput: sequences decoded together. (default: 1)"),
    ] = None,
    run: common.RunOption = None,
    target: common.TargetOption = None,
    revision: common.RevisionOption = None,
    trust_remote_code: common.TrustOption = False,
    offline: common.OfflineOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Choose the draft vocabulary: the best trade of coverage against what a head row costs.

    Reads the run's coverage; writes vocab.safetensors and search.json. Examples:

    vtrim search --alpha 0.6 --cmin 0.95

    vtrim search --objective throughput --gpu "H100 SXM" --align 64

    vtrim search --objective budget --cmin 0.99
    """
    from vtrim.cli.search_steps import SearchRequest, run_search
    from vtrim.cli.target_config import ModelSource
    from vtrim.trimming.settings import parse_settings

    settings = parse_settings(
        objective=objective,
        alpha=alpha,
        cmin=cmin,
        kmin=kmin,
        kmax=kmax,
        num_trials=trials,
        seed=seed,
        sampler=sampler,
        preset=preset,
        keep=keep or (),
        align=align,
        a0=a0,
        num_draft_tokens=num_draft_tokens,
        batch=batch,
    )
    source = None
    if target is not None:
        source = ModelSource(
            name=target, revision=revision, trust_remote_code=trust_remote_code, offline=offline
        )
    elif revision is not None or trust_remote_code:
        option = "--trust-remote-code" if revision is None else "--revision"
        raise OptionError(f"{option}: only a model named with --target uses it. Leave it out.")
    folder = common.open_run(run)
    request = SearchRequest(settings=settings, source=source, storage=storage, gpu=gpu)
    texts = {} if json_output else folder.read_token_texts()  # a damaged file stops it here
    result = run_search(folder, request)
    if json_output:
        artifact = {"artifact": str(folder.vocab)}
        common.emit_json({**result.summary(), **result.reasons(), **artifact})
    else:
        from vtrim.cli.search_table import print_search
        from vtrim.cli.token_text import Texts

        print_search(result, folder.vocab, Texts(None, texts))
