"""``vtrim search``: the size of the draft vocabulary, by TPE and exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vtrim.cli import common

if TYPE_CHECKING:
    from vtrim.artifacts import Run
    from vtrim.cli.target_config import ModelSource
    from vtrim.trimming.search import SearchResult
    from vtrim.trimming.settings import SearchSettings


def search(
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
    trials: Annotated[int, typer.Option(help="Sizes that TPE tries.")] = 100,
    seed: Annotated[int, typer.Option(help="Of TPE; the same seed tries the same sizes.")] = 42,
    sampler: Annotated[
        str, typer.Option(help="Whose size is written: tpe or exact. Both are shown.")
    ] = "tpe",
    preset: Annotated[
        str, typer.Option(help="default, or paper: alpha 0.5 and no floor, as arXiv:2603.05210.")
    ] = "default",
    keep: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="Token id to keep whatever its count; repeatable."),
    ] = None,
    run: common.RunOption = None,
    target: common.TargetOption = None,
    revision: common.RevisionOption = None,
    trust_remote_code: common.TrustOption = False,
    offline: common.OfflineOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Choose the draft vocabulary: the best trade of coverage against saved FLOPs.

    Reads the run's coverage; writes vocab.safetensors and search.json.
    """
    from vtrim.cli.target_config import ModelSource
    from vtrim.trimming.settings import parse_settings

    settings = parse_settings(
        alpha=alpha,
        cmin=cmin,
        kmin=kmin,
        kmax=kmax,
        num_trials=trials,
        seed=seed,
        sampler=sampler,
        preset=preset,
        keep=keep or (),
    )
    source = target and ModelSource(
        name=target, revision=revision, trust_remote_code=trust_remote_code, offline=offline
    )
    folder = common.open_run(run)
    result = _search(folder, settings, source or None)
    _write(folder, result)
    if json_output:
        common.emit_json({**result.summary(), "artifact": str(folder.vocab)})
    else:
        from vtrim.cli.search_table import print_search

        print_search(result, folder.vocab)


def _search(run: Run, settings: SearchSettings, source: ModelSource | None) -> SearchResult:
    """Loads what the run holds and searches, with a progress bar over the trials."""
    from dataclasses import replace

    from vtrim.cli.search_target import other_target, own_target
    from vtrim.trimming.coverage import Coverage
    from vtrim.trimming.search import search as search_k

    coverage = Coverage.load(run.require(run.coverage, "coverage"))
    if source is None:
        target = own_target(run, coverage)
    else:
        common.hush_libraries()
        target = other_target(run, coverage, source)
    settings = replace(settings, keep=(*target.stop_ids, *settings.keep))
    with common.progress("searching", settings.num_trials) as advance:
        result = search_k(coverage, target.shape, settings, on_trial=advance)
    target.record(run)
    return result


def _write(run: Run, result: SearchResult) -> None:
    """Leaves the vocabulary, every trial and a note in the run's manifest."""
    from vtrim import __version__
    from vtrim.artifacts import write_json

    metadata = {
        "tokenizer_fingerprint": result.tokenizer_fingerprint,
        "coverage_fingerprint": result.coverage_fingerprint,
        "vtrim": __version__,
    }
    heldout = result.curve.heldout_coverage(result.chosen.k)
    if heldout is not None and heldout < result.settings.cmin:
        common.warn(
            f"on held-out conversations coverage is {100 * heldout:.1f} %, below --cmin "
            f"{100 * float(result.settings.cmin):g} %: the floor holds for the counted ones only."
        )
    result.vocab.save(run.vocab, metadata)
    write_json(run.search, result.to_json())
    run.record("search", {**result.summary(), "artifact": str(run.vocab)})
