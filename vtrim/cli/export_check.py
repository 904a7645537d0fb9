"""What ``vtrim export --check`` and ``--show-launch`` read and print."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from vtrim.cli import common
from vtrim.cli.export_steps import ExportCall, engine_name, run_export, show
from vtrim.cli.trim_target import DraftCall, TrimTarget, find_target
from vtrim.errors import OptionError, VtrimError

if TYPE_CHECKING:
    from vtrim.models.serving.folder import Served

_STYLES = {"loads": "green", "silently differs": "magenta", "refuses": "red", "note": "dim"}


@dataclass(frozen=True, kw_only=True)
class CheckCall(DraftCall):
    """The options of one call that looks at a draft and writes nothing."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    num_draft_tokens: int = 3


def export_and_show(
    wanted: ExportCall | None, looked_at: CheckCall, *, launch: bool, json_output: bool
) -> None:
    """Writes what is wanted, looks at it or at another folder, and prints both."""
    result = {} if wanted is None else run_export(wanted)
    if wanted is None and not launch:
        result = run_check(looked_at)
    elif wanted is not None:
        engines = run_check(replace(looked_at, say_target=False))["engines"]
        result["engines"] = {name: part["verdict"] for name, part in engines.items()}
    if launch:
        result["launch"] = run_launch(looked_at)
    if json_output:
        common.emit_json(result)
        return
    if wanted is not None:
        show(result)
        verdicts = result["engines"]
        common.note("engines: " + ", ".join(f"{n} {v}" for n, v in verdicts.items()))
        if set(verdicts.values()) != {"loads"}:
            common.note(f"for the reasons: vtrim export --check {looked_at.draft}")
    elif not launch:
        show_check(result)
    show_launch(result.get("launch", {}))


def run_check(call: CheckCall) -> dict[str, Any]:
    """What each engine makes of the folder; the fields of ``--json``."""
    from vtrim.models.serving.check import check_folder, own_verdict

    found = _target(call)
    own = own_verdict(call.draft, None if found is None else found.to_import())
    return {
        "folder": str(call.draft),
        "layout": own.get("layout"),
        "target": None if found is None else found.name,
        "engines": check_folder(call.draft, served(call, found)),
        "vtrim": own,
    }


def _target(call: CheckCall) -> TrimTarget | None:
    """The target to judge by: the one named, the run's, or the draft's own where it is here."""
    if call.target is not None:
        return find_target(call)
    try:
        found = find_target(call)
        named = _noted(call.draft) if found is None else None
        return found if named is None else find_target(replace(call, target=named))
    except VtrimError as error:  # the folder may be no draft, which the check says itself
        if call.draft.is_dir():
            common.note(f"target left out: {error}")
        return None


def _noted(draft: Path) -> str | None:
    """The target that a draft names, if its files are here."""
    from vtrim.models.foreign_config import read_config, verifier_name
    from vtrim.models.smollm2 import SMOLLM2, is_converted

    config = read_config(draft / "config.json")
    name = (config.get("vtrim") or {}).get("target") or verifier_name(config)
    here = is_converted() if name == SMOLLM2 else name and (Path(name) / "config.json").is_file()
    return str(name) if here else None


def served(call: CheckCall, target: TrimTarget | None) -> Served | None:
    """The target as rules ask it."""
    from vtrim.models.serving.folder import Served

    if target is None:
        return None
    place = Path(engine_name(target.name))
    return Served(
        config=target.config,
        folder=place if place.is_dir() else None,
        tensor_parallel=call.tensor_parallel,
        pipeline_parallel=call.pipeline_parallel,
    )


def show_check(result: dict[str, Any]) -> None:
    """The table on stdout: a row for each engine and each of its findings."""
    table = Table(title=Text(f"What engines make of {result['folder']}"), show_lines=True)
    table.add_column("engine")
    table.add_column("it")
    table.add_column("because", ratio=1, overflow="fold")
    for engine, part in (*result["engines"].items(), ("vtrim", result["vtrim"])):
        lines = Text("\n").join([_finding(one) for one in part["findings"]])
        verdict = Text(part["verdict"], style=_STYLES[part["verdict"]])
        name = f"{engine} {part['version']}" if "version" in part else engine
        table.add_row(Text(name), verdict, lines)
    common.results.print(table)
    if result["target"] is None:
        common.note("judged without the target; --target shows more")


def _finding(one: dict[str, Any]) -> Text:
    line = Text(f"{one['verdict']}: ", style=_STYLES[one["verdict"]])
    line.append(one["what"], style="default")
    if one.get("remedy"):
        line.append(f" -> {one['remedy']}", style="default")
    if "evidence" in one:
        line.append(f" ({one['evidence']})", style="dim")
    return line


def run_launch(call: CheckCall) -> dict[str, str]:
    """Engine -> the commands that serve the draft.

    Raises:
        OptionError: nothing tells the target. InputError: the folder is no draft.
    """
    from vtrim.models.aux_layers import default_aux_layers
    from vtrim.models.importing import import_draft
    from vtrim.models.serving.launch import Launch, commands

    found = find_target(call)
    draft = import_draft(call.draft, None if found is None else found.to_import())
    name = found.name if found is not None else draft.target_name
    if name is None:
        raise OptionError("--show-launch: name the target with --target.")
    layers, aux = draft.shape.num_target_layers, draft.aux_layer_ids
    usual = layers >= 7 and (aux is None or aux == default_aux_layers(layers))
    blocks = None if aux is None or usual else [j - 1 for j in aux]
    return commands(
        Launch(
            folder=str(call.draft.resolve()),
            target=engine_name(name),
            num_draft_tokens=call.num_draft_tokens,
            dtype=str(draft.dtype).removeprefix("torch."),
            blocks=blocks,
            starts_target=draft.layout == "speculators",
        )
    )


def show_launch(launch: dict[str, str]) -> None:
    """The commands on stdout, as they are to be typed."""
    for engine, text in launch.items():
        common.results.print(f"# {engine}\n{text}\n", markup=False, soft_wrap=True)
