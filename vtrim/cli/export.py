"""``vtrim export``: a trained draft in another layout, and what engines make of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vtrim.cli import common, draft_options
from vtrim.errors import OptionError


def export(
    draft: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of an EAGLE-3 draft of any layout. (default: the run's)",
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="portable (all engines), sglang (SpecForge), vllm, speculators, eagle, trtllm "
            "(ModelOpt).",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder to write.", show_default=False),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option("--check", help="Only say what each engine will do with DIR.", metavar="DIR"),
    ] = None,
    show_launch: Annotated[
        bool, typer.Option("--show-launch", help="Print each engine's command to serve it.")
    ] = False,
    num_draft_tokens: Annotated[
        int, typer.Option(min=1, help="Draft tokens a round in those commands.")
    ] = 3,
    tensor_parallel: Annotated[
        int, typer.Option(min=1, help="Ranks that --check shares the draft among.")
    ] = 1,
    pipeline_parallel: Annotated[
        int, typer.Option(min=1, help="Stages of the target that --check reckons with.")
    ] = 1,
    run: common.RunOption = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="The draft's target: hub id, local folder or smollm2. speculators names it. "
            "(default: the draft's own note, or the run's where it fits)",
            show_default=False,
        ),
    ] = None,
    force: draft_options.Force = False,
    revision: common.RevisionOption = None,
    trust_remote_code: common.TrustOption = False,
    offline: common.OfflineOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Write a trained EAGLE-3 draft in the layout of an engine or of another project.

    Weights keep their dtype and every bit; `vtrim import` reads each layout back. --check says of
    any folder whether vLLM, SGLang, TensorRT-LLM and EAGLE load it, refuse it, or load it and
    silently draft something else.

    Example: vtrim export vtrim-run/draft --to speculators -o draft-speculators
    """
    from vtrim.cli.export_check import CheckCall, export_and_show
    from vtrim.cli.export_steps import ExportCall

    place = common.open_run(run)
    looked_at = CheckCall(
        draft=check or (output if to else None) or draft or place.draft,
        run=place,
        target=target,
        revision=revision,
        trust_remote_code=trust_remote_code,
        offline=offline,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        num_draft_tokens=num_draft_tokens,
    )
    if check is not None and (draft is not None or to is not None or output is not None):
        raise OptionError("--check DIR: only looks; give no other draft, no --to and no --output.")
    if (to is None) != (output is None) or (to is None and check is None and not show_launch):
        raise OptionError("name the layout with --to and the folder to write with --output.")
    wanted = None
    if to is not None and output is not None:
        wanted = ExportCall(
            draft=draft or place.draft,
            to=to,
            output=output,
            run=place,
            target=target,
            force=force,
            revision=revision,
            trust_remote_code=trust_remote_code,
            offline=offline,
        )
    export_and_show(wanted, looked_at, launch=show_launch, json_output=json_output)
