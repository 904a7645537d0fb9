"""From a recipe to the command lines of its steps; the commands say which keys there are."""

from __future__ import annotations

import glob
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtrim.artifacts import Run, fingerprint_json, fingerprint_path
from vtrim.cli.chain_keys import (
    COMMANDS,
    MAYBE_ELSEWHERE,
    NOTHING,
    READS,
    WRITES,
    command_of,
    decides,
    keys_of,
    listed,
    no_key,
    options_of,
    refused,
    typed_words,
)
from vtrim.cli.eval_call import result_name
from vtrim.config import Recipe, Value
from vtrim.errors import InputError

_WORDS = {("vocab", "full"), ("vocab", "draft")}  # values that name no file
_ARGUMENTS = {"regenerate": "prompts", "coverage": "data"}


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command of the chain.

    name: as it is shown and recorded, e.g. ``eval dropmatch``. section: where its keys stand in
    the recipe. arguments: what is typed after ``vtrim``. options: the typed ones, parsed.
    """

    name: str
    target: str
    command: str
    section: str
    arguments: tuple[str, ...]
    options: dict[str, Any]

    @property
    def line(self) -> str:
        """What a user would type."""
        return f"vtrim {shlex.join(self.arguments)}"


def chain_steps(recipe: Recipe, run: Run) -> list[Step]:
    """The steps of a recipe in order, each parsed by its command.

    Raises:
        InputError: a key is unknown or its value none that the command takes; names file and line.
    """
    steps = []
    data = [input_of(recipe, f"data.{index}", name) for index, name in enumerate(recipe.data)]
    if recipe.regenerate:
        step = _step(recipe, run, "regenerate", "regenerate", dict(recipe.regenerate))
        steps.append(step)
        data.insert(0, str(step.options["output"]))
    if not data:
        raise InputError(f"{recipe.where('data')}: name data, or a `regenerate` section.")
    steps.append(_step(recipe, run, "coverage", "coverage", dict(recipe.coverage), data))
    steps.append(_step(recipe, run, "search", "search", dict(recipe.search)))
    steps.append(_step(recipe, run, "train", "train", dict(recipe.train)))
    for index, section in enumerate(recipe.eval):
        steps.append(_step(recipe, run, f"eval.{index}", "eval", dict(section)))
    steps.append(_step(recipe, run, "report", "report", dict(recipe.report)))
    seen: dict[str, str] = {}
    for step in steps:
        if step.name in seen:
            raise InputError(
                f"{recipe.where(step.section)}: {step.name} stands twice; give each its own name."
            )
        seen[step.name] = step.section
    return steps


def _step(
    recipe: Recipe,
    run: Run,
    place: str,
    section: str,
    values: dict[str, Value],
    data: list[str] | None = None,
) -> Step:
    """One step: its values checked as keys, its files found, its line parsed by the command."""
    command, target = COMMANDS[section], input_of(recipe, "target", recipe.target)
    known = keys_of(command)
    for key in values.keys() - known.keys():
        raise no_key(recipe, f"{place}.{key}", key, command, known)
    _files(recipe, run, place, command, values)
    prompts = listed(values.pop("prompts", [])) if command == "regenerate" else []
    typed = {
        key: typed_words(recipe.where(f"{place}.{key}"), known[key], value)
        for key, value in values.items()
    }
    words = [*(data or prompts), *(word for one in typed.values() for word in one)]
    if command in ("coverage", "regenerate"):
        words += ["--target", target]
    if command == "regenerate":
        words += ["--output", str(run.root / _replies(recipe, target, prompts, typed))]
    else:
        words += ["--run", str(run.root)]
    options = _parse(recipe, place, command, words)
    return Step(
        name=_name(command, options),
        target=target,
        command=command,
        section=place,
        arguments=(command, *words),
        options=options,
    )


def _replies(recipe: Recipe, target: str, prompts: list[str], typed: dict[str, list[str]]) -> str:
    """The file of the target's replies: another target, other prompts or settings, another file.

    So nothing that was generated is thrown away, and what was begun is gone on with.
    """
    if not prompts:
        raise InputError(f"{recipe.where('regenerate')}: name the `prompts` to answer.")
    files = READS["regenerate"]
    settings = [
        content_of(one) if key in files else one
        for key, one in typed.items()
        if decides("regenerate", key)
    ]
    made_from = [content_of(target), content_of(prompts), settings]
    return f"replies-{fingerprint_json(made_from)[7:15]}.jsonl.gz"


def content_of(value: Any) -> Any:
    """The value with the content of files and folders in place of their names."""
    if isinstance(value, list | tuple):
        return [content_of(one) for one in value]
    path = Path(str(value))
    return fingerprint_path(path) if path.exists() else value


def _name(command: str, options: dict[str, Any]) -> str:
    """The step's name; an evaluation is told by the name of its artefact."""
    if command != "eval":
        return command
    return f"eval {result_name(options)}"


def _files(recipe: Recipe, run: Run, place: str, command: str, values: dict[str, Value]) -> None:
    """Puts the folder in front of every value that names a file.

    Raises:
        InputError: what has to be there is not.
    """
    for key in values.keys() & READS.get(command, set()):
        names = listed(values[key])
        at = f"{place}.{key}"
        values[key] = [input_of(recipe, at, name) for name in names if name not in NOTHING]
        for name in values[key]:
            there = Path(name).exists() or glob.has_magic(name)
            if not there and key not in MAYBE_ELSEWHERE and (key, name) not in _WORDS:
                raise InputError(f"{recipe.where(at)}: {name}: no such file.")
    for key in values.keys() & WRITES.get(command, set()):
        name = str(values[key])
        if name not in NOTHING and "://" not in name:
            values[key] = str(run.root / name)


def recipe_files(recipe: Recipe) -> list[str]:
    """The files beside a recipe that it names, relative to its folder."""
    sections = [("coverage", {"data": recipe.data})]
    for section, command in COMMANDS.items():
        one = getattr(recipe, section)
        sections += [(command, values) for values in (one if isinstance(one, list) else [one])]
    names: dict[str, None] = {}
    for command, values in sections:
        for key in values.keys() & READS.get(command, set()):
            names |= dict.fromkeys(listed(values[key]))
    folder = recipe.path.parent
    return [name for name in names if not Path(name).is_absolute() and (folder / name).is_file()]


def input_of(recipe: Recipe, place: str, name: str) -> str:
    """A name of the recipe as the command gets it: beside the recipe, where something is there.

    What --set names lies where the user is. What is nowhere may be an id of the hub, a built-in
    name, or missing; ``recipe_check`` and the command will say.
    """
    beside = recipe.path.parent / name
    if recipe.where(place).startswith("--set"):
        return name
    if beside.exists() or (glob.has_magic(name) and glob.glob(str(beside), recursive=True)):  # noqa: PTH207
        return str(beside)
    return name


def _parse(recipe: Recipe, place: str, command: str, words: list[str]) -> dict[str, Any]:
    """The typed options as the command reads them, by key.

    Raises:
        InputError: it does not take them.
    """
    from vtrim.cli.main import UsageError

    try:
        context = command_of(command).make_context(command, list(words))
    except UsageError as error:
        message = " ".join(error.format_message().split())
        raise refused(recipe, place, command, message) from error
    typed = {}
    for key, option in options_of(command).items():
        if context.get_parameter_source(option.name).name == "COMMANDLINE":
            typed[key] = context.params[option.name]
    if command in _ARGUMENTS:
        typed[_ARGUMENTS[command]] = context.params[_ARGUMENTS[command]]
    return typed
