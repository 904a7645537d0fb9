"""The options of ``vtrim train-draft`` that are run settings, made from the settings themselves."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from vtrim.training.settings import HELP, TrainSettings, option_of


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Adds an option for every run setting; ``settings`` receives those that were typed."""
    names = {option_of(name)[2:].replace("-", "_"): name for name in HELP}
    options = [_parameter(option, name) for option, name in names.items()]
    own = inspect.signature(command, eval_str=True)
    kept = [p for p in own.parameters.values() if p.name != "settings"]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        typed = {names[o]: given.pop(o) for o in names if o in given}
        chosen = {name: value for name, value in typed.items() if value is not None}
        command(settings=chosen, **given)

    parameters = [
        *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in kept[:_FIRST]),
        *options,
        *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in kept[_FIRST:]),
    ]
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


_FIRST = 3  # --run, --target and --vocab come before the settings on the help page


def _parameter(option: str, name: str) -> inspect.Parameter:
    default = {field.name: field.default for field in fields(TrainSettings)}[name]
    kind = _plain(get_type_hints(TrainSettings)[name])
    shown = "none" if default is None else default
    flag = "--" + option.replace("_", "-")
    declared = f"{flag}/--no-{flag[2:]}" if kind is bool else flag
    text = f"{HELP[name]} (default: {shown})"
    return inspect.Parameter(
        option,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, typer.Option(declared, help=text)],
    )


def _plain(hint: Any) -> Any:
    """int, float, bool or str behind ``int | None`` or ``Literal["a", "b"]``."""
    if get_origin(hint) is None:
        return hint
    first = next(value for value in get_args(hint) if value is not type(None))
    return str if isinstance(first, str) else first
