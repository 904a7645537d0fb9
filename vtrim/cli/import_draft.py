"""``vtrim import``: a draft of another project, written in the portable layout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vtrim.cli import common, draft_options


def import_command(
    source: Annotated[
        Path,
        typer.Argument(
            help="Folder of an EAGLE-3 draft: EAGLE, SpecForge, AngelSlim, ModelOpt, speculators, "
            "vLLM's or TensorRT-LLM's names.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder to write.", show_default=False)
    ],
    run: common.RunOption = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="The draft's target: hub id, local folder or smollm2. Needed where the draft has "
            "no head of its own. (default: the run's, where it fits the draft)",
            show_default=False,
        ),
    ] = None,
    rope_theta: draft_options.RopeTheta = None,
    aux_layers: draft_options.AuxLayers = None,
    force: draft_options.Force = False,
    revision: common.RevisionOption = None,
    trust_remote_code: common.TrustOption = False,
    offline: common.OfflineOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Read an EAGLE-3 draft of any layout and write it in the portable one, not a bit changed.

    What was converted is said: the order of head rows, absolute ids, layer numbers, an embedding
    left out. Variants that compute something else are refused by name.

    Example: vtrim import downloads/eagle3-llama -o draft --target meta-llama/Llama-3.1-8B-Instruct
    """
    from vtrim.cli.export_steps import show
    from vtrim.cli.import_steps import ImportCall, run_import

    call = ImportCall(
        draft=source,
        output=output,
        run=common.open_run(run),
        target=target,
        rope_theta=rope_theta,
        aux_layers=common.parse_aux_layers(aux_layers),
        force=force,
        revision=revision,
        trust_remote_code=trust_remote_code,
        offline=offline,
    )
    result = run_import(call)
    common.emit_json(result) if json_output else show(result)
