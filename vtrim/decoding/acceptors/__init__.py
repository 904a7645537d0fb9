"""The rules that decide how much of a proposal is kept, by name.

A new rule is a file here and a line in ``ACCEPTORS``; a conformance test runs over the table.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import fields
from importlib import import_module
from typing import Any, cast

from vtrim.decoding.protocol import Acceptor
from vtrim.errors import OptionError

ACCEPTORS = {
    "dropmatch": "vtrim.decoding.acceptors.dropmatch:DropMatch",
    "greedy": "vtrim.decoding.acceptors.greedy:Greedy",
    "rejection": "vtrim.decoding.acceptors.rejection:Rejection",
}


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
    known = [field.name for field in fields(acceptor) if field.init]
    if "seed" in known:
        options["seed"] = seed
    for option in options:
        if option not in known:
            names = ", ".join(known) or "none"
            raise OptionError(f"acceptor {name}: unknown option '{option}'. Its options: {names}.")
    if temperature > 0 and acceptor.greedy_only:
        raise OptionError(
            f"acceptor {name} works at temperature 0 only, not at {temperature:g}. "
            "Use rejection, which keeps the target's law at any temperature."
        )
    return cast(Acceptor, acceptor(**options))


def exact_acceptor(temperature: float, seed: int) -> Acceptor:
    """The lossless baseline: ``greedy`` at temperature 0, else ``rejection``."""
    name = "greedy" if temperature == 0 else "rejection"
    return make_acceptor(name, temperature=temperature, seed=seed)


def check_temperature(temperature: float) -> None:
    """Refuses what no law can be scaled by.

    Raises:
        OptionError: a negative, infinite or undefined temperature.
    """
    if not 0 <= temperature < math.inf:
        raise OptionError(f"temperature={temperature:g} must be 0 (greedy) or a positive number.")


def _acceptor_class(name: str) -> Any:
    if name not in ACCEPTORS:
        close = difflib.get_close_matches(name, ACCEPTORS, n=1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise OptionError(f"unknown acceptor '{name}'.{hint} Known: {', '.join(ACCEPTORS)}.")
    module, _, attribute = ACCEPTORS[name].partition(":")
    return getattr(import_module(module), attribute)
