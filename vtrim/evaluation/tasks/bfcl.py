"""Berkeley Function Calling Leaderboard, one turn, Python: the calls of a reply against answers.

Scored as the published checker does (``bfcl_match``); the leaderboard's Java and JavaScript, its
several-turn and its agentic categories are not asked. The metric is the share of all questions,
where the leaderboard averages over categories: those stand in the groups.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vtrim.chat.conversation import Message, Origin, RowError
from vtrim.chat.turns import messages_of
from vtrim.evaluation.tasks.bfcl_calls import NoCalls, calls_of
from vtrim.evaluation.tasks.bfcl_match import Function, Wanted, all_match
from vtrim.evaluation.tasks.rows import NO_ANSWER, NO_QUESTION
from vtrim.evaluation.tasks.task import Question, Rows, Score, Task

_CATEGORY = re.compile(r"_\d+(?:-\d+)*$")  # what stands before the number in an id
_IRRELEVANT, _RELEVANT = ("irrelevance", "live_irrelevance"), ("live_relevance",)
_ASKED = {
    *("simple", "simple_python", "multiple", "parallel", "parallel_multiple"),
    *("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"),
    *_IRRELEVANT,
    *_RELEVANT,
}
_SYSTEM = (
    "You answer by calling functions. Choose the function or functions that the user's request "
    "needs and reply with the calls alone, as a Python list and with named arguments: "
    "[first_function(name=value, other=value), second_function(name=value)]. When no function "
    "fits, or a required argument is not given, say so in words instead.\n\n"
    "The functions, in JSON:\n"
)
_LISTED = "Available functions:\n"  # in rows of conversations, before the JSON list


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a reply is compared with. wanted: None where only whether it calls at all counts."""

    functions: list[Function]
    wanted: list[Wanted] | None
    calls: bool = True


def _with_answers(rows: Rows) -> Iterator[tuple[Origin, Any]]:
    """The rows that ask, each with the answers that a row of the same id has."""
    asked: list[tuple[Origin, Any]] = []
    answers: dict[str, Any] = {}
    for origin, row in rows:
        if isinstance(row, Mapping) and "ground_truth" in row and "question" not in row:
            answers[str(row.get("id"))] = row["ground_truth"]
        else:
            asked.append((origin, row))
    for origin, row in asked:
        known = isinstance(row, Mapping) and str(row.get("id")) in answers
        yield origin, {"ground_truth": answers[str(row["id"])], **row} if known else row


def _judge(question: Question, reply: str) -> Score:
    """1 where the calls are those wanted, or the reply rightly calls nothing."""
    expected: Expected = question.answer
    try:
        calls = calls_of(reply)
    except NoCalls:
        calls = []
    if expected.wanted is None:
        return Score(value=float(bool(calls) == expected.calls))
    return Score(value=float(all_match(calls, expected.wanted, expected.functions)))


def _ask(row: Any, origin: Origin) -> Question:
    if not isinstance(row, Mapping):
        raise RowError(NO_QUESTION, "the row is no JSON object")
    if "messages" in row:
        return _conversation(row, origin)
    row_id, turns = row.get("id"), row.get("question")
    functions = _functions(row.get("function"))
    if not isinstance(row_id, str) or not isinstance(turns, list) or not turns:
        raise RowError(NO_QUESTION, "the row needs `id`, `question` and `function`")
    category = _CATEGORY.sub("", row_id)
    if category not in _ASKED or len(turns) != 1:
        raise RowError("not scored here", f"{category}: only one turn and Python are")
    return Question(
        origin=origin,
        messages=_with_functions(messages_of(turns[0], "question"), functions),
        answer=_expected(category, functions, row.get("ground_truth")),
        group=category,
    )


def _expected(category: str, functions: list[Function], truth: Any) -> Expected:
    if category in (*_IRRELEVANT, *_RELEVANT):
        return Expected(functions=functions, wanted=None, calls=category in _RELEVANT)
    if not isinstance(truth, list) or not all(isinstance(one, Mapping) and one for one in truth):
        detail = "no row of possible answers has its id (the leaderboard's `possible_answer` files)"
        raise RowError(NO_ANSWER, detail)
    return Expected(functions=functions, wanted=truth)


def _functions(functions: Any) -> list[Function]:
    """The functions that may be called; some rows of irrelevance have none."""
    given: list[Any] = functions if isinstance(functions, list) else [functions]
    if not all(_is_function(one) for one in given):
        raise RowError(NO_QUESTION, "`function` lists no functions with names and parameters")
    return given


def _is_function(one: Any) -> bool:
    parameters = one.get("parameters", {}) if isinstance(one, Mapping) and "name" in one else None
    described = parameters.get("properties", {}) if isinstance(parameters, Mapping) else None
    if not isinstance(described, Mapping):
        return False
    return all(isinstance(each, Mapping) for each in described.values())


def _with_functions(messages: list[Message], functions: list[Function]) -> tuple[Message, ...]:
    """The turns behind a system turn that says what there is to call, and how."""
    system = _SYSTEM + json.dumps(functions, ensure_ascii=False, indent=1)
    if messages and messages[0]["role"] == "system":
        system, messages = f"{system}\n\n{messages[0]['content']}", messages[1:]
    return ({"role": "system", "content": system}, *messages)


def _conversation(row: Mapping[str, Any], origin: Origin) -> Question:
    """A conversation that says what may be called, with the JSON calls that end it as answer."""
    messages = messages_of(row["messages"], "messages")
    system = messages[0]["content"] if messages else ""
    try:
        functions = json.loads(system.partition(_LISTED)[2] or "null")
        wanted = calls_of(messages[-1]["content"]) if messages[-1:] else []
    except (ValueError, NoCalls) as error:
        raise RowError(NO_ANSWER, f"functions or calls cannot be read: {error}") from error
    if messages[-1]["role"] != "assistant":
        raise RowError(NO_ANSWER, "no reply with calls ends the conversation")
    return Question(
        origin=origin,
        messages=tuple(messages[:-1]),
        answer=Expected(
            functions=_functions(functions),
            wanted=[{name: {key: [one] for key, one in given.items()}} for name, given in wanted],
        ),
        group=str(row.get("source", "")),
    )


BFCL = Task(
    name="bfcl",
    title="Berkeley Function Calling Leaderboard v4, one turn, Python (AST match)",
    licence="Apache-2.0",
    metric="accuracy",
    max_new_tokens=512,
    arrange=_with_answers,
    ask=_ask,
    score=_judge,
)
