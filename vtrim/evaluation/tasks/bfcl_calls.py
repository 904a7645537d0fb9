"""The function calls in a reply: Python calls, or JSON.

Python is read as the published checker of the Berkeley Function Calling Leaderboard reads it
(``bfcl-eval`` 2026.3.23, ``default_decode_ast_prompting``), without running any of it: positional
arguments are dropped, a bare name is its text. JSON is what models write that call functions
natively: objects with ``name`` and ``arguments``, in a list or one between each pair of
``<tool_call>`` marks.
"""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

_UNREADABLE = (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError)
"""What Python raises for a text that it cannot parse, and for values that cannot be computed."""

Call = tuple[str, dict[str, Any]]
"""A function's name and its arguments by name."""

_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_FENCED = re.compile(r"\A```[a-z]*\n(.*?)(?:```|\Z)", re.DOTALL)
_JSON = re.compile(r"\[?\s*\{")
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_LONGEST_POWER = 4096  # bits


class NoCalls(Exception):  # noqa: N818 - a reply in words is no error
    """A reply that cannot be read as function calls."""


def calls_of(reply: str) -> list[Call]:
    """The calls in a reply, in its order; empty of ``[]``.

    Raises:
        NoCalls: the reply is not calls alone.
    """
    text = reply.strip()
    tagged = _TAGGED.findall(text)
    if tagged:
        return [call for part in tagged for call in _json_calls(part)]
    fenced = _FENCED.match(text)
    inner = fenced[1].strip() if fenced is not None else text
    return _json_calls(inner) if _JSON.match(inner) else _python_calls(text)


def _json_calls(text: str) -> list[Call]:
    try:
        parsed = json.loads(text)
        return [_json_call(one) for one in (parsed if isinstance(parsed, list) else [parsed])]
    except (ValueError, RecursionError) as error:
        raise NoCalls(str(error)) from error


def _json_call(call: Any) -> Call:
    if isinstance(call, dict) and isinstance(call.get("function"), dict):
        call = call["function"]  # the form of OpenAI's API
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise NoCalls("an object without `name`")
    arguments = call.get("arguments", call.get("parameters", {}))
    if isinstance(arguments, str):  # JSON within JSON
        arguments = json.loads(arguments)
    if not isinstance(arguments, dict):
        raise NoCalls("`arguments` that are no object")
    return call["name"], arguments


def _python_calls(text: str) -> list[Call]:
    bare = text.strip("`\n ")
    opened = bare if bare.startswith("[") else f"[{bare}"
    whole = (opened if opened.endswith("]") else f"{opened}]").strip("'")
    try:
        body = ast.parse(whole, mode="eval").body
        found = [body] if isinstance(body, ast.Call) else getattr(body, "elts", None)
        if found is None:
            raise NoCalls("no list of calls")
        return [_call(one) for one in found]
    except _UNREADABLE as error:
        raise NoCalls(str(error)) from error


def _call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call):
        raise NoCalls(f"`{ast.unparse(node)}` is no call")
    parts: list[str] = []
    function = node.func
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    if isinstance(function, ast.Name):
        parts.append(function.id)
    arguments = {str(keyword.arg): _value(keyword.value) for keyword in node.keywords}
    return ".".join(reversed(parts)), arguments


def _value(node: ast.expr) -> Any:
    """The value that an argument's expression stands for; what cannot be computed is its text."""
    match node:
        case ast.Constant():
            return "..." if node.value is Ellipsis else node.value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List():
            return [_value(one) for one in node.elts]
        case ast.Tuple():
            return tuple(_value(one) for one in node.elts)
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = zip(keys, values, strict=True)
            return {_value(key): _value(one) for key, one in pairs if key is not None}
        case ast.Name():
            return node.id
        case ast.Call():
            return dict([_call(node)]) if node.keywords else ast.unparse(node)
        case ast.Subscript():
            return f"{ast.unparse(node.value)}[{ast.unparse(node.slice)}]"
        case ast.BinOp():
            return _number(node)
    raise NoCalls(f"`{ast.unparse(node)}` is no value")


def _number(node: ast.expr) -> int | float:
    """The value of sums and products of numbers."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=ast.USub()):
            return -_number(node.operand)
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            left, right = _number(node.left), _number(node.right)
            if isinstance(node.op, ast.Pow) and _bits(left) * abs(right) > _LONGEST_POWER:
                raise NoCalls(f"`{ast.unparse(node)}` is too large")
            result: int | float = _ARITHMETIC[type(node.op)](left, right)
            return result
    raise NoCalls(f"`{ast.unparse(node)}` is no number")


def _bits(number: int | float) -> int:
    return number.bit_length() if isinstance(number, int) else 1
