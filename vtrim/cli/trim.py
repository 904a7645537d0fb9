"""``vtrim trim``: another vocabulary for a draft that is already trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vtrim.cli import common, draft_options


def trim(
    draft: Annotated[
        Path,
        typer.Argument(
            help="Folder of an EAGLE-3 draft: vtrim, EAGLE, SpecForge, ModelOpt or speculators.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder of the new draft.", show_default=False),
    ],
    vocab: Annotated[
        Path | None,
        typer.Option(help="The new vocabulary: any file or folder `vtrim vocab show` reads."),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("-k", "--k", min=1, help="Or its size: the top K of the run's counts."),
    ] = None,
    run: common.RunOption = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="The draft's target: hub id, local folder or smollm2. Needed for new tokens. "
            "(default: the run's, where it fits the draft)",
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
    """Cut or extend the vocabulary of a trained EAGLE-3 draft, without training.

    Rows of kept tokens are taken over bit for bit. Rows of new tokens come from the target's head
    through a linear map, fitted on the tokens both have (ridge regression towards a scaled copy,
    weighted by the run's counts where they fit, its strength chosen on every fifth common row);
    how well the map restores rows it did not see is shown.

    Example: vtrim trim vtrim-run/draft --k 4096 --output draft-4096
    """
    from vtrim.cli.trim_steps import TrimCall, run_trim, show

    call = TrimCall(
        draft=draft,
        output=output,
        vocab=vocab,
        k=k,
        run=common.open_run(run),
        target=target,
        rope_theta=rope_theta,
        aux_layers=common.parse_aux_layers(aux_layers),
        force=force,
        revision=revision,
        trust_remote_code=trust_remote_code,
        offline=offline,
    )
    result = run_trim(call)
    common.emit_json(result) if json_output else show(result, run)
