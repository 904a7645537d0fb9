"""Whether function calls are the ones wanted: the published checker's rules, for Python.

Reimplemented from the rules of ``bfcl-eval`` 2026.3.23 (``ast_checker``), with their corners: a
list of possible values for each argument, where ``""`` says that it may be left out; texts compared
without case, spaces and ``,./-_*^``; an integer is good for a float but not the other way round;
types are looked at one level deep; a value of the answer's type passes for a variable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vtrim.evaluation.tasks.bfcl_calls import Call

Function = Mapping[str, Any]
Wanted = Mapping[str, Mapping[str, Sequence[Any]]]
"""One call: its function's name, and the possible values of each argument."""

_TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
    "number": float,  # these two: of JSON schema, not of the leaderboard's own data
    "object": dict,
}
_IGNORED = re.compile(r"[ ,./\-_*^]")
_OPTIONAL = ""


def all_match(calls: Sequence[Call], wanted: Sequence[Wanted], functions: list[Function]) -> bool:
    """Whether these are the wanted calls and no others, in any order.

    Each wanted call takes the first call left that matches it.
    """
    left = list(calls)
    for one in wanted:
        name, values = next(iter(one.items()))
        function = next((f for f in functions if f.get("name") == name), None)
        fits = [function is not None and matches(call, values, function) for call in left]
        if True not in fits:
            return False
        del left[fits.index(True)]
    return not left


def matches(call: Call, wanted: Mapping[str, Sequence[Any]], function: Function) -> bool:
    """Whether one call is of this function, with arguments of its types and possible values."""
    name, arguments = call
    parameters = function.get("parameters") or {}
    described = parameters.get("properties", {})
    required = parameters.get("required", ())
    if name != function["name"] or any(key not in arguments for key in required):
        return False
    for key, value in arguments.items():
        if key not in described or key not in wanted:
            return False
        if not _argument_fits(value, wanted[key], described[key]):
            return False
    return all(key in arguments or _OPTIONAL in values for key, values in wanted.items())


def _argument_fits(value: Any, possible: Sequence[Any], described: Mapping[str, Any]) -> bool:
    kind = described.get("type")
    expected = _TYPES.get(str(kind))
    if expected is None:
        return value in possible
    items = described.get("items", {}).get("type") if expected is list else None
    inner = _TYPES.get(str(items))
    if kind == "tuple" and type(value) is tuple:
        value = list(value)
    if expected is float and type(value) is int:
        value = float(value)
    is_variable = _variable_or_not(value, possible, expected, inner)
    if is_variable is None:
        return False
    if is_variable:
        return value in possible
    if expected is dict:
        return _dict_fits(value, possible)
    if expected is list and inner is dict:
        return any(_dicts_fit(value, one) for one in possible)
    if expected is list:
        return _plain_list(value) in [_plain_list(one) for one in possible if _has_items(one)]
    if expected is str:
        return _plain(value) in [_plain(one) for one in possible if type(one) is str]
    return value in possible


def _variable_or_not(
    value: Any, possible: Sequence[Any], expected: type, inner: type | None
) -> bool | None:
    """Whether a value stands for a variable, None where its type is wrong.

    It does where the answers are of another type than the function asks for.
    """
    answer = next((type(one) for one in possible if one != _OPTIONAL), None)
    kind = type(value)
    if kind is expected:
        if inner is not None and not any(_items_fit(value, one, inner) for one in possible):
            return None
        return answer is not None and answer is not expected
    return True if answer is kind else None


def _items_fit(value: Sequence[Any], answer: Any, inner: type) -> bool:
    """Whether each item is of the inner type, or of that of the answer's items."""
    if type(answer) is not list:
        return True
    return all(_variable_or_not(one, answer, inner, None) is not None for one in value)


def _dict_fits(value: Mapping[Any, Any], possible: Sequence[Any]) -> bool:
    return any(_entries_fit(value, one) for one in possible if one != _OPTIONAL)


def _entries_fit(value: Any, answer: Any) -> bool:
    if not isinstance(value, Mapping) or not isinstance(answer, Mapping):
        return False
    for key, one in value.items():
        if key not in answer or _plain(one) not in [_plain(other) for other in answer[key]]:
            return False
    return all(key in value or _OPTIONAL in values for key, values in answer.items())


def _dicts_fit(value: Sequence[Any], answer: Any) -> bool:
    if not _has_items(answer) or len(value) != len(answer):
        return False
    return all(_dict_fits(one, [other]) for one, other in zip(value, answer, strict=True))


def _has_items(answer: Any) -> bool:
    return isinstance(answer, list | str)


def _plain_list(items: Sequence[Any]) -> list[Any]:
    return [_plain(one) for one in items]


def _plain(value: Any) -> Any:
    """A text without what does not count; any other value as it is."""
    if type(value) is not str:
        return value
    return _IGNORED.sub("", value).lower().replace("'", '"')
