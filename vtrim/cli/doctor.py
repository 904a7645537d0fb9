"""``vtrim doctor``: what this machine can run, and what to type for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from vtrim import __version__
from vtrim.cli import common

if TYPE_CHECKING:
    from vtrim.cli.doctor_checks import Check

STYLES = {"ok": "green", "missing": "red", "optional": "yellow"}


def doctor(run: common.RunOption = None, json_output: common.JsonOption = False) -> None:
    """Show versions, devices, DeepSpeed's operators, the demo target and the state of the run.

    What is missing comes with what to type. The exit code is always 0.

    Example: vtrim doctor --json
    """
    from vtrim.cli.doctor_checks import MISSING, all_checks

    checks, raw = all_checks(common.open_run(run))
    missing = [check.name for check in checks if check.state == MISSING]
    if json_output:
        common.emit_json(_result(checks, missing, raw))
        return
    common.results.print(_table(checks))
    count = len(missing)
    text = f"missing: {', '.join(missing)}" if count else "nothing that a command needs is missing"
    common.results.print(text, markup=False)


def _result(checks: Sequence[Check], missing: list[str], raw: dict[str, Any]) -> dict[str, Any]:
    """The ``--json`` object: versions and devices by name, then every check."""
    groups: dict[str, dict[str, str]] = {"versions": {"vtrim": __version__}, "devices": {}}
    for check in checks:
        if check.group in groups:
            groups[check.group][check.name] = check.detail
    return {**groups, **raw, "missing": missing, "checks": [asdict(check) for check in checks]}


def _table(checks: Sequence[Check]) -> Table:
    table = Table(title=f"vtrim {__version__}")
    table.add_column("part", overflow="fold")
    table.add_column("state")
    table.add_column("finding, and what to type where something is missing", overflow="fold")
    group = ""
    for check in checks:
        if check.group != group:
            table.add_section()
            table.add_row(Text(check.group, style="bold"))
            group = check.group
        finding = Text(check.detail)
        if check.remedy:
            finding.append(f"\n-> {check.remedy}", style="bold")
        table.add_row(Text(f"  {check.name}"), Text(check.state, STYLES[check.state]), finding)
    return table
