"""The values of ``vtrim eval`` that are typed as text: numbers or a word, lists, NAME=VALUE."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from vtrim.errors import OptionError

AUTO = "auto"
CHAIN_LENGTH = 3
"""Tokens drafted a round unless something else is typed."""
LONGEST_REPLY = 128
"""Tokens of a reply unless something else is typed, or a task has its own."""
LOCAL, VLLM, OPENAI = "local", "vllm", "openai"
"""What ``--engine`` can be."""
CPU_TREE = (16, 3, 4)
"""A tree where none was typed: rows of a verification are nearly free on a GPU only."""
NEEDED_KNOBS = {"fsd-js": "threshold=0.1", "cactus": "delta=0.5"}
"""An example of the option that a rule does not do without."""
MOST_DRAFTED = 8
"""What ``--num-draft-tokens auto`` never exceeds in a chain."""


def exact_rule(temperature: float) -> str:
    """The rule that keeps the target's law."""
    return "greedy" if temperature == 0 else "rejection"


def draft_tokens(typed: str | None) -> int | str | None:
    """A number of tokens, ``auto``, or None where nothing was typed.

    Raises:
        OptionError: it is no number from 1 on.
    """
    if typed in (None, AUTO):
        return typed
    counts = _numbers(typed or "", ",")
    if len(counts) != 1 or counts[0] < 1:
        raise OptionError(f"--num-draft-tokens {typed}: give a whole number from 1 on, or {AUTO}.")
    return counts[0]


def noise(typed: str) -> float | str:
    """A share of dropped units, or ``auto``.

    Raises:
        OptionError: it is neither.
    """
    if typed == AUTO:
        return typed
    try:
        return float(typed)
    except ValueError as error:
        raise OptionError(
            f"--p-drop {typed}: give a share from 0 to below 1, or {AUTO}."
        ) from error


def tree_shape(typed: str) -> tuple[int, int, int]:
    """Total tokens, depth and children a node of a draft tree.

    Raises:
        OptionError: it is not three whole numbers.
    """
    numbers = _numbers(typed, ",")
    if len(numbers) != 3:
        raise OptionError(f"--tree {typed}: give TOTAL,DEPTH,TOPK, e.g. 60,6,10.")
    total, depth, top_k = numbers
    return total, depth, top_k


def blocks(typed: str) -> tuple[int, ...]:
    """Numbers of decoder blocks, typed as numbers and ranges between commas.

    Raises:
        OptionError: a part is neither.
    """
    found: list[int] = []
    for part in typed.split(","):
        ends = _numbers(part, "-")
        if len(ends) not in (1, 2) or ends[0] > ends[-1]:
            raise OptionError(
                f"--skip-layers {typed}: give blocks and ranges of them, e.g. 10-17 or 3,5,10-12."
            )
        found += range(ends[0], ends[-1] + 1)
    return tuple(found)


def knobs(typed: Sequence[str]) -> dict[str, object]:
    """The options of ``--knob NAME=VALUE``; a value is a JSON number, word or else text.

    Raises:
        OptionError: there is no name, a name stands twice, or a value is a list or an object.
    """
    found: dict[str, object] = {}
    for one in typed:
        name, equals, text = one.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name.isidentifier():
            raise OptionError(f"--knob {one}: give NAME=VALUE, e.g. delta=0.3.")
        if name in found:
            raise OptionError(f"--knob {one}: {name} is given twice.")
        found[name] = _scalar(one, text.strip())
    return found


def under_knob(refusal: str, typed: Sequence[str]) -> str:
    """A rule's refusal of an option that was typed as ``--knob NAME=VALUE``, named like that."""
    for one in typed:
        name = one.partition("=")[0].strip().replace("-", "_")
        either = name.replace("_", "[-_]")
        own = re.match(rf"(?:--)?{either}[= ].*?(?:: | (?=must ))(.*)", refusal, re.DOTALL)
        if own is not None:
            return f"--knob {one}: {own[1]}"
        if f"'{name}'" in refusal:
            return f"--knob {one}: {refusal}"
    return refusal


def _scalar(typed: str, text: str) -> object:
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    if isinstance(value, list | dict):
        raise OptionError(f"--knob {typed}: give one number, word or text.")
    return value


def _numbers(text: str, separator: str) -> list[int]:
    """Whole numbers between separators; nothing where a part is not written in digits alone."""
    parts = [part.strip() for part in text.split(separator)]
    digits = all(part.isascii() and part.isdecimal() for part in parts)
    return [int(part) for part in parts] if digits else []
