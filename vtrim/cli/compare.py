"""``vtrim compare``: two results of ``vtrim eval`` on the same prompts, and whether they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vtrim.cli import common

_RESULT = "A result of `vtrim eval` (eval/NAME.json), or its run folder."


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help=_RESULT, show_default=False)],
    second: Annotated[
        Path, typer.Argument(metavar="B", help="What is compared with it.", show_default=False)
    ],
    as_json: common.JsonOption = False,
) -> None:
    """Compare two drafts, acceptors or engines: difference, interval, p-value, in plain words.

    Prompts are compared in pairs; results of other prompts, targets or limits are refused.

    Example: vtrim compare run/eval/greedy.json run/eval/dropmatch.json
    """
    from vtrim.cli.compare_steps import run_compare, show

    result = run_compare(first, second)
    common.emit_json(result) if as_json else show(result)
