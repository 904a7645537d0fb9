"""What of a recipe can be proved wrong in seconds: no model, no hub, no run folder."""

from __future__ import annotations

import glob
import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from vtrim.artifacts import Run
from vtrim.cli.chain import Step, chain_steps, input_of
from vtrim.cli.chain_keys import READS, command_of, refused
from vtrim.config import HEADER, Recipe, load_recipe, read_header
from vtrim.errors import InputError, VtrimError


def check_recipe(path: Path) -> list[Step]:
    """The steps of a recipe that would start: header, keys, values, files and data are right.

    Raises:
        InputError: the first thing that is not; names file and line.
    """
    recipe = load_recipe(path)
    header = read_header(path)
    for word in HEADER:
        if not header.get(word):
            raise InputError(f"{path}:1: the header has no '# {word}: ...' line.")
    steps = chain_steps(recipe, Run("vtrim-run"))
    check_values(recipe, steps)
    return steps


def check_values(recipe: Recipe, steps: list[Step]) -> None:
    """Refuses what is not there, numbers out of range and options that contradict each other.

    Raises:
        InputError: names the file and the line of the key.
    """
    checks = {
        "regenerate": _regenerate,
        "coverage": _coverage,
        "search": _search,
        "train-draft": _train,
        "eval": _eval,
    }
    if any(step.command not in ("search", "report") for step in steps):
        _check_target(recipe)
    for step in steps:
        if step.command == "coverage":
            for index, name in enumerate(recipe.data):
                _check_data(recipe, f"data.{index}", name, step.options.get("split"))
        if step.command in checks:
            try:
                checks[step.command](step)
            except VtrimError as error:
                raise refused(recipe, step.section, step.command, str(error)) from error


def _check_target(recipe: Recipe) -> None:
    """Refuses a target that can only be a folder of this machine and is none."""
    target = input_of(recipe, "target", recipe.target)
    if not Path(target).exists() and _HUB_ID.fullmatch(target) is None:
        raise InputError(f"{recipe.where('target')}: {target}: no such folder.")


_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")  # no path: ./x, /x, ~/x, a/b/c


def _check_data(recipe: Recipe, place: str, name: str, split: str | None) -> None:
    """Refuses data that should be on this machine and are not; the hub is not asked."""
    from vtrim.chat.hub_data import parse_hub_id
    from vtrim.chat.sources import expand

    found = Path(input_of(recipe, place, name))
    there = found.exists() or bool(glob.has_magic(name))
    if not there and parse_hub_id(name) is not None and not found.suffix:
        return
    try:
        expand([str(found)], split=split if found.is_dir() else None, offline=True)
    except VtrimError as error:
        raise InputError(f"{recipe.where(place)}: {error}") from error


def _regenerate(step: Step) -> None:
    from vtrim.cli.common import check_device, pick_dtype
    from vtrim.cli.regenerate import check_options

    options = step.options
    check_options(options)
    check_device(options.get("device"))
    pick_dtype(options.get("dtype", "auto"))


def _coverage(step: Step) -> None:
    from vtrim.cli.coverage_request import check_words

    options = step.options
    check_words(
        options.get("map", ()),
        encoder=options.get("encoder", "auto"),
        engine=options.get("engine", "local"),
    )


def _search(step: Step) -> None:
    from vtrim.cli.search_steps import SearchRequest
    from vtrim.trimming.settings import parse_settings

    taken = inspect.signature(parse_settings).parameters
    values = {{"trials": "num_trials"}.get(key, key): one for key, one in step.options.items()}
    settings = parse_settings(**{key: value for key, value in values.items() if key in taken})
    storage, gpu = step.options.get("storage"), step.options.get("gpu")
    SearchRequest(settings=settings, source=None, storage=storage, gpu=gpu)


def _train(step: Step) -> None:
    from vtrim.cli.common import check_device
    from vtrim.cli.train_call import TrainCall, check_options
    from vtrim.training.hostfile import read_hostfile
    from vtrim.training.settings import HELP, option_of

    options = step.options
    keys = {name: option_of(name)[2:].replace("-", "_") for name in HELP}
    call: dict[str, Any] = {one.name: options.get(one.name) for one in fields(TrainCall)}
    call |= {name: Path(value) for name, value in call.items() if name in _PATHS and value}
    processes = options.get("num_gpus")
    if options.get("hostfile"):
        processes = read_hostfile(Path(options["hostfile"]), processes).processes
    call |= {
        "settings": {name: options[key] for name, key in keys.items() if key in options},
        "run": Run(options["run"]),
        "mix": tuple(options.get("mix", ())),
        "processes": processes or 1,
    }
    check_options(TrainCall(**call), processes or 1)
    check_device(options.get("device"))


_PATHS = READS["train-draft"] - {"vocab"}


def _eval(step: Step) -> None:
    from vtrim.cli.common import check_device
    from vtrim.cli.eval_call import EvalCall

    parsed = command_of(step.command).make_context(step.command, list(step.arguments[1:]))
    call = EvalCall.of(Run(parsed.params["run"]), parsed.params)
    call.check()
    check_device(call.device)
