"""Which steps of a chain are up to date: what each was made from, kept in run.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtrim.artifacts import Run, fingerprint_file, fingerprint_json
from vtrim.cli.chain import Step, content_of
from vtrim.cli.chain_keys import READS, decides

NEW, CHANGED = "not run here yet", "changed"
_DRAFT = ("draft/config.json", "draft/model.safetensors")
_COUNTS = ("coverage.npz", "target/config.json")
_FROM = {
    "search": _COUNTS,
    "train-draft": (*_COUNTS, "vocab.safetensors"),
    "eval": (*_DRAFT, "target/config.json"),
    "report": (*_COUNTS, *_DRAFT, "search.json", "step_times.json", "train/metrics.jsonl"),
}
"""Files of the run folder that a command reads; the report reads every eval/*.json too."""

_MAKES = {
    "coverage": (*_COUNTS, "target/tokens.json"),
    "search": ("vocab.safetensors", "search.json"),
    "train-draft": _DRAFT,
}

_ELSEWHERE = {"run", "output", "data", "target"}
"""Options that are places, or whose content is looked at below."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a step is made from: its options and the fingerprints of all it reads."""

    options: Mapping[str, Any]
    inputs: Mapping[str, str]


def made_from(step: Step, run: Run) -> Made:
    """What the step would be made from now.

    Raises:
        InputError: data that it reads cannot be found.
    """
    files = READS.get(step.command, set())
    options = {
        key: content_of(value) if key in files else value
        for key, value in step.options.items()
        if key not in _ELSEWHERE and decides(step.command, key)
    }
    if step.command == "train-draft":  # however they are shared out among processes
        slots = int(options.pop("num_gpus", 1)) * int(options.pop("grad_accum", 1))
        options["micro-batches a step"] = slots
    names = list(_FROM.get(step.command, ()))
    if step.command == "search" and options.get("objective") == "throughput":
        names.append("step_times.json")
    if step.command == "report":
        names += [str(path.relative_to(run.root)) for path in sorted(run.eval.glob("*.json"))]
    inputs = {name: fingerprint_file(run.root / name) for name in names if _there(run, name)}
    if step.command == "coverage":
        inputs["data"] = _data(step)
    if step.command in ("train-draft", "eval"):  # they read the conversations again
        inputs["data"] = _counted(run)
    if step.command not in ("search", "report"):
        inputs["target"] = str(content_of(step.target))
    return Made(options=_plain(options), inputs=inputs)


def why(step: Step, run: Run, made: Made) -> str:
    """Why the step has to run; empty where nothing that it depends on has changed."""
    entry = entry_of(step, run)
    if not entry:
        return NEW
    now = {**made.inputs, **made.options}
    then = {**entry.get("inputs", {}), **entry.get("options", {})}
    for name in [name for name in {**now, **then} if now.get(name) != then.get(name)]:
        return f"{name} {CHANGED}"
    if not entry.get("outputs"):
        return "unfinished"
    if set(entry["outputs"]) != set(outputs_of(step, run)):
        return f"output {CHANGED}"
    for name, fingerprint in entry["outputs"].items():
        if not Path(run.root, name).is_file():
            return f"{name} is gone"
        if fingerprint_file(Path(run.root, name)) != fingerprint:
            return f"{name} is not what it made"
    return ""


def entry_of(step: Step, run: Run) -> dict[str, Any]:
    """What run.json keeps of the step; empty for a new one."""
    entry: dict[str, Any] = run.read().get("chain", {}).get(step.name, {})
    return entry


def is_written(step: Step, run: Run) -> bool:
    """Whether the target's replies are there whole and only not noted, e.g. after a kill.

    Their file gets its name when it is whole, and the name tells all that it was made from.
    """
    if step.command != "regenerate" or not Path(step.options["output"]).is_file():
        return False
    return not entry_of(step, run).get("outputs", {}).keys() & set(outputs_of(step, run))


def note_begun(step: Step, run: Run, made: Made) -> None:
    """Remembers what a step is being made from, so that a killed one is known as unfinished."""
    _keep(step, run, {"line": step.line, "options": made.options, "inputs": made.inputs})


def note_done(step: Step, run: Run, seconds: float) -> None:
    """Remembers what the step has made and how long it took."""
    outputs = {name: fingerprint_file(run.root / name) for name in outputs_of(step, run)}
    _keep(step, run, {**entry_of(step, run), "seconds": round(seconds, 1), "outputs": outputs})


def outputs_of(step: Step, run: Run) -> list[str]:
    """The files a step leaves in the run folder."""
    if step.command == "eval":
        return [f"eval/{step.name.partition(' ')[2]}.json"]
    if step.command in ("regenerate", "report"):
        kind = step.options.get("format") or "html"
        written = Path(step.options.get("output") or run.report.with_suffix(f".{kind}"))
        inside = written.is_relative_to(run.root)
        return [str(written.relative_to(run.root) if inside else written.absolute())]
    return list(_MAKES[step.command])


def _keep(step: Step, run: Run, entry: Mapping[str, Any]) -> None:
    run.update(chain={**run.read().get("chain", {}), step.name: dict(entry)})


def _there(run: Run, name: str) -> bool:
    return (run.root / name).is_file()


def _data(step: Step) -> str:
    """Fingerprint of the data that coverage is to count, by content."""
    from vtrim.chat.sources import expand

    options = step.options
    sources = expand(
        options["data"], split=options.get("split"), offline=bool(options.get("offline"))
    )
    return fingerprint_json([source.fingerprint() for source in sources])


def _counted(run: Run) -> str:
    """Fingerprint of what run.json says of target and data, wherever the files lie."""
    manifest = run.read()
    data = dict(manifest.get("data", {}))
    files = [file.get("fingerprint") for file in data.pop("files", [])]
    data.pop("generated", None)
    target = {k: v for k, v in manifest.get("target", {}).items() if k != "name"}
    return fingerprint_json([files, data, target])


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON gives them back: tuples as lists, paths as text."""
    return {
        key: [str(one) for one in value] if isinstance(value, list | tuple)
        else value if isinstance(value, str | int | float | bool) else str(value)
        for key, value in options.items()
    }  # fmt: skip
