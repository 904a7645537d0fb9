"""Replies made from a row's answer: right ones, and ones that are spoilt in one place."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def bfcl(row: Mapping[str, Any]) -> Iterator[str]:
    """The wanted calls with values picked at random, then each with something changed."""
    chance = random.Random(str(row["id"]))  # noqa: S311
    truth = row.get("ground_truth")
    if truth is None:
        yield from ("[]", "I cannot.", "[f(x=1)]", "[{}]", "f", "[f]", "")
        return
    for _ in range(4):
        calls = [(name, _arguments(one[name], chance)) for one in truth for name in one]
        chance.shuffle(calls)
        yield _written(calls)
        yield _written([_spoilt(call, chance) for call in calls])
    yield _written(calls[:-1])
    yield _written([*calls, calls[0]])


def _arguments(wanted: Mapping[str, list[Any]], chance: random.Random) -> dict[str, Any]:
    picked = {key: chance.choice(values) for key, values in wanted.items() if values}
    if chance.random() < 0.8:
        picked = {key: one for key, one in picked.items() if one != ""}
    return {key: _inner(one, chance) for key, one in picked.items()}


def _inner(value: Any, chance: random.Random) -> Any:
    """A dictionary of possible values as one of them."""
    if isinstance(value, dict):
        return {
            key: _inner(chance.choice(one), chance)
            for key, one in value.items()
            if isinstance(one, list) and one
        }
    if isinstance(value, list):
        return [_inner(one, chance) for one in value]
    return value


def _spoilt(call: tuple[str, dict[str, Any]], chance: random.Random) -> Any:
    name, given = call[0], dict(call[1])
    if not given or chance.random() < 0.1:
        return name + "s", given
    key = chance.choice(sorted(given))
    value = given[key]
    other: list[Any] = [
        str(value), [value], (value,), None, True, 0, "", {"a": value}, [], (), -1, 1.0,
    ]  # fmt: skip
    if isinstance(value, str):
        other += [value.upper(), value.replace(" ", "-"), value + "x", value + " "]
    if isinstance(value, int | float):
        other += [value + 1, float(value), int(value), -value]
    if isinstance(value, list):
        other += [value[::-1], tuple(value), value[:-1], [str(one) for one in value], value * 2]
    if isinstance(value, dict):
        other += [dict(list(value.items())[:-1]), {**value, "more": 1}]
    change = chance.randrange(6)
    if change == 0:
        del given[key]
    elif change == 1:
        given["more"] = value
    else:
        given[key] = chance.choice(other)
    return name, given


def _written(calls: list[tuple[str, dict[str, Any]]]) -> str:
    texts = [
        f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"
        for name, given in calls
    ]
    return f"[{', '.join(texts)}]"


def humaneval(row: Mapping[str, Any]) -> Iterator[str]:
    """The reference solution, as a body and as a whole function, and a wrong one."""
    code = f"{row['prompt']}{row['canonical_solution']}"
    yield row["canonical_solution"]
    yield f"Here it is:\n\n```python\n{code}```\nIt works."
    yield f"```python\n{code.replace('return', 'return not')}```"
    yield "    return None\n"


def ner(row: Mapping[str, Any]) -> Iterator[str]:
    """The recorded list, and lists with entities dropped, doubled, of another type or cut."""
    text = row["messages"][-1]["content"]
    entities = json.loads(text)
    chance = random.Random(text)  # noqa: S311
    yield text
    yield f"Entities: {text}."
    yield json.dumps(entities + entities[:1])
    yield json.dumps([*entities[1:], {"type": "person", "text": "Nobody"}])
    yield json.dumps([{**one, "type": chance.choice(["person", one["type"]])} for one in entities])
    yield text[:-1]


def gsm8k(row: Mapping[str, Any]) -> Iterator[str]:
    """The recorded reasoning, and numbers written in many ways."""
    answer = row["answer"].rpartition("####")[2].strip()
    yield row["answer"]
    for form in ("{}", "{}.", "${}", "{}.00", "-{}", "{}%", "is **{}**", "{} or 7", "{},", "{}!"):
        yield "So it is " + form.format(answer)
    yield "No idea."


def math500(row: Mapping[str, Any]) -> Iterator[str]:
    r"""The answer in a box, without one, and spelled in other ways."""
    answer = row["answer"]
    yield row.get("solution", answer)
    for form in (
        r"\boxed{%s}", r"$%s$", "%s", r"\boxed{ %s }", r"\boxed{%s.}", r"$x = %s$", r"\boxed %s$",
        r"$\boxed{%s}$ or $2$", r"\fbox{%s}", r"\boxed{%s", r"\boxed{%s\%%}", r"\boxed{\text{%s}}",
    ):  # fmt: skip
        yield "It is " + form % answer
    for old, new in (("frac", "dfrac"), (" ", ""), ("{", ""), ("\\", ""), ("(", r"\left(")):
        yield rf"\boxed{{{answer.replace(old, new)}}}"


MADE: Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "bfcl": bfcl,
    "humaneval": humaneval,
    "ner": ner,
    "gsm8k": gsm8k,
    "math500": math500,
}
