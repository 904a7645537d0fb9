"""The options that commands share which read a draft and write another: trim, import, export."""

from __future__ import annotations

from typing import Annotated

import typer

RopeTheta = Annotated[
    float | None,
    typer.Option(help="RoPE base the draft was trained with, if its config says otherwise."),
]
AuxLayers = Annotated[
    str | None,
    typer.Option(
        help="Target states the draft reads (hidden_states indices), e.g. 2,16,29. "
        "(default: what its config names)",
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace a draft in --output.")]
