"""The keys of a recipe's sections: which there are, what they name, how they are typed."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from vtrim.config import Recipe, Value, unknown_key
from vtrim.errors import InputError
from vtrim.training.settings import FREE_ON_RESUME, option_of

COMMANDS = {
    "regenerate": "regenerate",
    "coverage": "coverage",
    "search": "search",
    "train": "train-draft",
    "eval": "eval",
    "report": "report",
}
"""Section to command, in the order of the chain."""

EVERYWHERE = {"run", "target", "json"}
NOT_KEYS = {
    "regenerate": {"output", "shard"},
    "coverage": {"tokenizer", "preview", "preview_html", "shard", "merge"},
    "search": {"revision", "trust_remote_code"},
    "train-draft": {"plan", "restart"},
}
"""Options that `vtrim run` sets itself, or that make something else than the step's artefacts."""

READS = {
    "regenerate": {"prompts", "template"},
    "coverage": {"data", "generated", "template"},
    "train-draft": {"vocab", "init_from", "hostfile", "draft_config", "deepspeed_config"},
    "eval": {"draft", "prompts", "task_data", "draft_model", "draft_vocab", "engine_python"},
}
"""Keys whose values name files or folders: beside the recipe."""

MAYBE_ELSEWHERE = {"generated", "draft_model"}
"""Those that may be not there: ids of the hub, or what the chain makes."""

WRITES = {"search": {"storage"}, "train-draft": {"cache_features"}, "report": {"output"}}
"""Keys whose values name what is written: in the run folder."""

SAME_RESULT = {
    "offline", "processes", "engine", "encoder", "cache_features", "concurrency",
    "request_timeout", "batch_size", "master_addr", "master_port",
} | {option_of(name)[2:].replace("-", "_") for name in FREE_ON_RESUME}  # fmt: skip
"""Options that decide how a step runs and not what it makes."""

_MEASURED = {("eval", "batch_size"), ("eval", "engine")}
"""Options of that kind in commands that measure how a step runs."""

NOTHING = ("", "null", "~")
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")


def decides(command: str, key: str) -> bool:
    """Whether an option decides what a step makes, and not only how it runs."""
    return key not in SAME_RESULT or (command, key) in _MEASURED


def keys_of(command: str) -> dict[str, Any]:
    """The keys of a command's section: its options by their names, without what is no key."""
    kept = {}
    for key, option in options_of(command).items():
        if key not in EVERYWHERE | NOT_KEYS.get(command, set()):
            kept[key] = option
    if command == "regenerate":
        kept["prompts"] = None  # its argument; that of coverage stands at the recipe's top
    return kept


def options_of(command: str) -> dict[str, Any]:
    """All options of a command by their longest flag, with underscores."""
    return {
        max(option.opts, key=len)[2:].replace("-", "_"): option
        for option in command_of(command).params
        if option.param_type_name == "option"
    }


@cache
def command_of(name: str) -> Any:
    """The parsed command line of a subcommand, as typer builds it."""
    import typer

    from vtrim.cli.main import app

    return typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]


def no_key(recipe: Recipe, place: str, key: str, command: str, known: dict[str, Any]) -> InputError:
    """The error for a key that the command's section has not."""
    where = recipe.where(place)
    if key not in options_of(command):
        return unknown_key(where, key, known)
    if key == "target":
        return InputError(f"{where}: the target stands at the top of a recipe.")
    return InputError(f"{where}: not for a recipe; type --{key.replace('_', '-')} to {command}.")


def listed(value: Value) -> list[str]:
    """One value or several as a list."""
    return [value] if isinstance(value, str) else list(value)


def typed_words(where: str, option: Any, value: Value) -> list[str]:
    """An option as it is typed; nothing for a value that says so."""
    flag = max(option.opts, key=len)
    if value in NOTHING:
        return []
    if option.is_flag:
        if str(value).lower() in _TRUE:
            return [flag]
        if str(value).lower() in _FALSE:
            return list(option.secondary_opts[:1])
        raise InputError(f"{where}: {value}: true or false is expected.")
    if isinstance(value, dict):
        value = [f"{name}={part}" for name, part in value.items()]
    if isinstance(value, list):
        if option.multiple:
            return [word for one in value for word in (flag, one)]
        value = ",".join(value)
    return [flag, value]


def refused(recipe: Recipe, place: str, command: str, message: str) -> InputError:
    """The error for a value that a command does not take, at the line of the key it names."""
    named = {
        min(found): key
        for key, option in options_of(command).items()
        if (found := [m.start() for m in re.finditer(_flags(key, option), message)])
    }
    key = named[min(named)] if named else ""
    return InputError(f"{recipe.where(f'{place}.{key}'.rstrip('.'))}: {message}")


def _flags(key: str, option: Any) -> str:
    """A pattern for an option's name as errors give it: ``--p-drop`` or ``p_drop=``."""
    return rf"({'|'.join(map(re.escape, option.opts))})(?![\w-])|\b{key}="
