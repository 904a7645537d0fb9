"""The settings that a sweep goes through: knobs with values or a range, and the grid of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from vtrim.errors import OptionError

Value = bool | int | float | str | None
Point = dict[str, Value]
"""One setting of every knob, in the order of the knobs."""

_RANGE = ".."


@dataclass(frozen=True, kw_only=True)
class Knob:
    """A named setting and what it goes through.

    values: those listed, or the whole numbers of a range; empty for a range of real numbers, which
    goes from ``low`` to ``high``. listed: whether the values were typed one by one.
    """

    name: str
    values: tuple[Value, ...] = ()
    low: float = 0.0
    high: float = 0.0
    listed: bool = True

    @property
    def real(self) -> Knob:
        """A range of real numbers between the same ends; a list stays as it is."""
        if self.listed or not self.values:
            return self
        low, high = (float(spelled(end)) for end in self.ends)
        return Knob(name=self.name, low=low, high=high, listed=False)

    def check_listed(self) -> None:
        """Refuses a range, which has no values to combine.

        Raises:
            OptionError: it is one.
        """
        if not self.listed:
            raise OptionError(
                f"--vary {self.name}: a grid needs values, not a range. List them, or give "
                "--sampler tpe --trials N."
            )

    @property
    def ends(self) -> tuple[Value, ...]:
        """The values to check before anything is measured: all that are listed, or both ends."""
        if self.listed:
            return self.values
        return (self.values[0], self.values[-1]) if self.values else (self.low, self.high)


def parse_knob(typed: str) -> Knob:
    """The knob of one ``--vary NAME=A,B,...`` or ``NAME=LOW..HIGH``.

    Raises:
        OptionError: there is no name or no value, a value stands twice, or the range is empty.
    """
    name, equals, text = typed.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or not name.isidentifier():
        raise OptionError(f"--vary {typed}: give NAME=VALUE,VALUE or NAME=LOW..HIGH.")
    if _RANGE in text:
        return _range(name, typed, text)
    texts = [part.strip() for part in text.split(",")]
    if not all(texts):
        raise OptionError(f"--vary {typed}: a value is missing. Give NAME=VALUE,VALUE.")
    values = tuple(scalar(part) for part in texts)
    twice = next((v for i, v in enumerate(values) if v in values[:i]), None)
    if twice is not None:
        raise OptionError(f"--vary {typed}: {twice} stands there twice.")
    return Knob(name=name, values=values)


def parse_knobs(typed: Sequence[str]) -> tuple[Knob, ...]:
    """The knobs of all ``--vary``.

    Raises:
        OptionError: there are none, a name stands twice, or one cannot be read.
    """
    if not typed:
        raise OptionError("nothing to vary: give --vary NAME=VALUE,VALUE, e.g. p_drop=0.05,auto.")
    knobs = tuple(parse_knob(one) for one in typed)
    names = [knob.name for knob in knobs]
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"--vary {name}: given twice. Put all its values into one.")
    return knobs


def grid(knobs: Sequence[Knob]) -> Iterator[Point]:
    """All combinations, the last knob turning fastest."""
    for values in product(*(knob.values for knob in knobs)):
        yield dict(zip((knob.name for knob in knobs), values, strict=True))


def corners(knobs: Sequence[Knob]) -> Iterator[Point]:
    """Combinations that hold every value to check: all of a grid, both ends of ranges."""
    for values in product(*(knob.ends for knob in knobs)):
        yield dict(zip((knob.name for knob in knobs), values, strict=True))


def num_points(knobs: Sequence[Knob]) -> float:
    """Number of combinations; infinite with a range of real numbers."""
    return math.prod(len(knob.values) or math.inf for knob in knobs)


def spelled(value: Value) -> str:
    """A value as it is typed."""
    return value if isinstance(value, str) else json.dumps(value)


def named(point: Point) -> str:
    """The settings in one line."""
    return " ".join(f"{name}={spelled(value)}" for name, value in point.items())


def scalar(text: str) -> Value:
    """A JSON number or word, else the text itself."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    plain = value is None or isinstance(value, bool | int | float)
    return value if plain and value == value else text


def _range(name: str, typed: str, text: str) -> Knob:
    low, high = (_end(typed, part.strip()) for part in text.split(_RANGE, 1))
    if low >= high:
        raise OptionError(f"--vary {typed}: the range is upside down; give LOW..HIGH.")
    if isinstance(low, int) and isinstance(high, int):
        return Knob(name=name, values=tuple(range(low, high + 1)), listed=False)
    return Knob(name=name, low=low, high=high, listed=False)


def _end(typed: str, text: str) -> int | float:
    """One end of a range."""
    value = scalar(text)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise OptionError(f"--vary {typed}: a range goes between two numbers, LOW..HIGH.")
    return value
