"""The rules that decide how much of a proposal is kept, by name.

A new rule is a file here and a line in ``ACCEPTORS``; a conformance test runs over the table.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from importlib import import_module
from typing import Any, cast

from vtrim.decoding.protocol import Acceptor
from vtrim.decoding.sampling import check_temperature
from vtrim.errors import OptionError, did_you_mean

ACCEPTORS = {
    "cactus": "vtrim.decoding.acceptors.cactus:Cactus",
    "dropmatch": "vtrim.decoding.acceptors.dropmatch:DropMatch",
    "fsd-js": "vtrim.decoding.acceptors.fsd_js:FsdJs",
    "greedy": "vtrim.decoding.acceptors.greedy:Greedy",
    "mars": "vtrim.decoding.acceptors.mars:Mars",
    "rejection": "vtrim.decoding.acceptors.rejection:Rejection",
    "relaxed": "vtrim.decoding.acceptors.relaxed:Relaxed",
    "typical": "vtrim.decoding.acceptors.typical:Typical",
}
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "a word"),
    "None": ((type(None),), "nothing"),
}
"""The values that each annotation of an option takes, and their name."""


def make_acceptor(
    name: str, *, temperature: float = 0.0, seed: int = 0, **options: object
) -> Acceptor:
    """The acceptor of that name with its options; ``seed`` is dropped by rules without chance.

    Raises:
        OptionError: the name or an option is unknown, a value is out of range, or the rule does
            not work at this temperature.
    """
    check_temperature(temperature)
    acceptor = _acceptor_class(name)
    known = {field.name: field for field in fields(acceptor) if field.init}
    if "seed" in known:
        options["seed"] = seed
    for option, value in options.items():
        if option not in known:
            names = ", ".join(known) or "none"
            raise OptionError(f"acceptor {name}: unknown option '{option}'. Its options: {names}.")
        _check_kind(option, value, str(known[option].type))
    for option, field in known.items():
        if option not in options and field.default is MISSING and field.default_factory is MISSING:
            raise OptionError(f"acceptor {name} needs {option}=VALUE: no value suits every model.")
    if temperature > 0 and acceptor.greedy_only:
        raise OptionError(
            f"acceptor {name} works at temperature 0 only, not at {temperature:g}. "
            "Use rejection, which keeps the target's law at any temperature."
        )
    return cast(Acceptor, acceptor(**options))


def option_types(name: str) -> dict[str, str]:
    """The options of a rule and their annotations, without the seed.

    Raises:
        OptionError: the name is unknown.
    """
    found = {field.name: str(field.type) for field in fields(_acceptor_class(name)) if field.init}
    return {option: kind for option, kind in found.items() if option != "seed"}


def exact_acceptor(temperature: float, seed: int) -> Acceptor:
    """The lossless baseline: ``greedy`` at temperature 0, else ``rejection``."""
    name = "greedy" if temperature == 0 else "rejection"
    return make_acceptor(name, temperature=temperature, seed=seed)


def _check_kind(option: str, value: object, annotation: str) -> None:
    """Refuses a value of another type than the option's annotation, such as ``float | str``."""
    kinds = [_KINDS[kind.strip()] for kind in annotation.split("|")]
    for types, _ in kinds:
        if isinstance(value, types) and (bool in types or not isinstance(value, bool)):
            return
    raise OptionError(f"{option}={value!r} must be {' or '.join(name for _, name in kinds)}.")


def _acceptor_class(name: str) -> Any:
    if name not in ACCEPTORS:
        hint = did_you_mean(name, ACCEPTORS)
        raise OptionError(f"unknown acceptor '{name}'.{hint} Known: {', '.join(ACCEPTORS)}.")
    module, _, attribute = ACCEPTORS[name].partition(":")
    return getattr(import_module(module), attribute)
