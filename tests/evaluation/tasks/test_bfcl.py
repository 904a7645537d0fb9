"""BFCL's rows and its AST match. The replies in HAND are checked by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vtrim.chat.conversation import Origin, RowError
from vtrim.evaluation.tasks.bfcl import BFCL
from vtrim.evaluation.tasks.bfcl_calls import NoCalls, calls_of
from vtrim.evaluation.tasks.sources import find_data
from vtrim.evaluation.tasks.task import Question


def function(name: str, required: list[str], **types: Any) -> dict[str, Any]:
    """A function's description; types: by parameter, ``array of X`` as a tuple."""
    properties = {
        key: {"type": kind[0], "items": {"type": kind[1]}}
        if isinstance(kind, tuple)
        else {"type": kind}
        for key, kind in types.items()
    }
    parameters = {"type": "dict", "properties": properties, "required": required}
    return {"name": name, "description": name, "parameters": parameters}


WEATHER = function("weather.get", ["city"], city="string", days="integer", exact="boolean")
AREA = function("area", ["width", "height"], width="float", height="float")
MEAN = function("mean", ["values"], values=("array", "integer"), label="string")
ROUTE = function("route", ["stops"], stops=("tuple", "float"), names=("array", "string"))
ORDER = function("order", ["item"], item="dict", items=("array", "dict"), note="any")

W = {"city": ["Oslo", "Oslo, Norway"], "days": [3, ""], "exact": ["", False]}
W_PARIS = {"city": ["Paris"], "days": [""], "exact": [""]}
A = {"width": [2.0], "height": [3.5]}
M = {"values": [[1, 2, 3]], "label": ["a-b c", ""]}
R = {"stops": [[1.5, 2.0]], "names": [["New York", "L.A."], ""]}
O = {  # noqa: E741
    "item": [{"kind": ["tea", "green tea"], "cups": [2, ""]}],
    "items": [[{"kind": ["tea"]}, {"kind": ["milk"]}], ""],
    "note": ["soon", ""],
}


def row(category: str, functions: list[Any], *wanted: dict[str, Any]) -> dict[str, Any]:
    truth = {"ground_truth": list(wanted)} if wanted else {}
    question = [[{"role": "user", "content": "Please."}]]
    return {"id": f"{category}_7", "question": question, "function": functions, **truth}


ONE = row("simple_python", [WEATHER], {"weather.get": W})
FLOAT = row("simple_python", [AREA], {"area": A})
LIST = row("simple_python", [MEAN], {"mean": M})
TUPLE = row("simple_python", [ROUTE], {"route": R})
DICT = row("simple_python", [ORDER], {"order": O})
CHOICE = row("multiple", [AREA, WEATHER, MEAN], {"weather.get": W})
TWO = row("parallel", [WEATHER], {"weather.get": W}, {"weather.get": W_PARIS})
MIXED = row("live_parallel_multiple", [AREA, WEATHER], {"area": A}, {"weather.get": W_PARIS})
NONE = row("irrelevance", [AREA])
SOME = row("live_relevance", [AREA])

HAND: list[tuple[dict[str, Any], str, bool]] = [
    (ONE, "[weather.get(city='Oslo', days=3)]", True),
    (ONE, "weather.get(city='Oslo')", True),  # brackets and what is optional left out
    (ONE, "```\n[weather.get(city='oslo,norway')]\n```", True),  # case, comma, space; fenced
    (ONE, "[weather.get(city='Bergen')]", False),
    (ONE, "[weather.get(days=3)]", False),  # a required argument is missing
    (ONE, "[weather.get(city='Oslo', days='3')]", False),  # text for an integer
    (ONE, "[weather.get(city='Oslo', days=3.0)]", False),  # float for an integer
    (ONE, "[weather.get(city='Oslo', wind=True)]", False),  # no such parameter
    (ONE, "[weather.get(city='Oslo', exact=True)]", False),
    (ONE, "[weather.get(city='Oslo', exact=False)]", True),
    (ONE, "[weather(city='Oslo')]", False),  # another function
    (ONE, "[weather.get('Oslo')]", False),  # the argument is not named
    (ONE, "[weather.get(city='Oslo'), weather.get(city='Oslo')]", False),  # once too often
    (ONE, "Sure: weather.get(city='Oslo')", False),  # words around the call
    (ONE, "[weather.get(city=Oslo)]", True),  # a bare name reads as its text
    (ONE, "[]", False),
    (FLOAT, "[area(width=2, height=3.5)]", True),  # an integer is good for a float
    (FLOAT, "[area(width=1+1, height=7/2)]", True),  # sums are computed
    (FLOAT, "[area(width=-2.0, height=3.5)]", False),
    (FLOAT, "[area(width=True, height=3.5)]", False),
    (LIST, "[mean(values=[1, 2, 3], label='A B-C')]", True),  # neither case nor marks count
    (LIST, "[mean(values=[1, 2, 3], label='a c b')]", False),
    (LIST, "[mean(values=[1, 2, 3], label='AB/C')]", True),
    (LIST, "[mean(values=[3, 2, 1])]", False),  # the order counts
    (LIST, "[mean(values=(1, 2, 3))]", False),  # a tuple is no array
    (LIST, "[mean(values=[1, 2, '3'])]", False),
    (TUPLE, "[route(stops=(1.5, 2.0), names=['new york', 'LA'])]", True),
    (TUPLE, "[route(stops=[1.5, 2.0])]", True),
    (TUPLE, "[route(stops=(1.5, 2))]", False),  # inside a tuple an integer is no float
    (DICT, "[order(item={'kind': 'Green Tea'})]", True),
    (DICT, "[order(item={'kind': 'tea', 'cups': 3})]", False),
    (DICT, "[order(item={'cups': 2})]", False),
    (DICT, "[order(item={'kind': 'tea'}, items=[{'kind': 'tea'}, {'kind': 'milk'}])]", True),
    (DICT, "[order(item={'kind': 'tea'}, items=[{'kind': 'milk'}, {'kind': 'tea'}])]", False),
    (DICT, "[order(item={'kind': 'tea'}, note='Soon.')]", True),
    (DICT, "[order(item='tea')]", False),
    (CHOICE, "[weather.get(city='Oslo')]", True),
    (CHOICE, "[area(width=2.0, height=3.5)]", False),
    (TWO, "[weather.get(city='Oslo'), weather.get(city='Paris')]", True),
    (TWO, "[weather.get(city='Paris'), weather.get(city='Oslo', days=3)]", True),  # any order
    (TWO, "[weather.get(city='Paris'), weather.get(city='Paris')]", False),
    (TWO, "[weather.get(city='Oslo')]", False),
    (MIXED, "[weather.get(city='Paris'), area(width=2.0, height=3.5)]", True),
    (NONE, "None of the functions can tell.", True),
    (NONE, "[]", True),
    (NONE, "[area(width=1, height=1)]", False),
    (SOME, "[area(width=1, height=1)]", True),  # any call will do
    (SOME, "I would need the height.", False),
]
JSON_CALLS = [
    (ONE, '[{"name": "weather.get", "arguments": {"city": "Oslo"}}]', True),
    (ONE, '{"name": "weather.get", "parameters": {"city": "Oslo"}}', True),
    (ONE, '```json\n[{"name": "weather.get", "arguments": {"city": "Oslo"}}]\n```', True),
    (ONE, '[{"type": "function", "function": {"name": "weather.get", "arguments": '
          '"{\\"city\\": \\"Oslo\\"}"}}]', True),
    (TWO, '<tool_call>{"name": "weather.get", "arguments": {"city": "Oslo"}}</tool_call>\n'
          '<tool_call>{"name": "weather.get", "arguments": {"city": "Paris"}}', True),  # left open
    (ONE, '[{"name": "weather.get", "arguments": {"city": "Rome"}}]', False),
    (ONE, '[{"name": "weather.get", "arguments": ["Oslo"]}]', False),
    (ONE, '[{"name": "weather.get", "arguments": {"city": "Oslo"}}', False),  # cut
    (NONE, '[{"name": "area", "arguments": {}}]', False),
]  # fmt: skip


def asked(*rows: Any) -> list[Question | RowError]:
    pairs = [(Origin("rows.json", i + 1), row) for i, row in enumerate(rows)]
    return [question for _, question in BFCL.questions(pairs)]


def question_of(given: dict[str, Any]) -> Question:
    (question,) = asked(given)
    assert isinstance(question, Question)
    return question


@pytest.mark.parametrize(("given", "reply", "right"), [*HAND, *JSON_CALLS])
def test_a_reply_is_right_where_its_calls_are_the_wanted_ones(
    given: dict[str, Any], reply: str, right: bool
) -> None:
    score = BFCL.score(question_of(given), reply)
    assert score is not None
    assert score.value == float(right)


def test_an_answer_row_is_joined_to_its_question_by_id() -> None:
    bare = {key: value for key, value in ONE.items() if key != "ground_truth"}
    answers = {"id": ONE["id"], "ground_truth": ONE["ground_truth"]}
    for rows in ((bare, answers), (answers, bare)):
        (question,) = asked(*rows)
        assert isinstance(question, Question)
        assert question.group == "simple_python"
        assert BFCL.score(question, "weather.get(city='Oslo')").value == 1.0


@pytest.mark.parametrize("answers", ["possible_answer/", "possible_answer__"])
def test_a_folder_holds_answers_in_files_of_their_own(answers: str, tmp_path: Path) -> None:
    bare = {key: value for key, value in ONE.items() if key != "ground_truth"}
    truth = {"id": ONE["id"], "ground_truth": ONE["ground_truth"]}
    for name, row in (("", bare), (answers, truth)):
        path = tmp_path / f"{name}BFCL_v4_simple_python.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(row) + "\n")
    (tmp_path / "BFCL_v4_format_sensitivity.json").write_text("[\n1]")  # of no question
    (found,) = BFCL.questions(find_data("bfcl", tmp_path).rows())
    assert isinstance(found[1], Question)
    assert found[1].answer.wanted == ONE["ground_truth"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({key: value for key, value in ONE.items() if key != "ground_truth"}, "no answer"),
        ({**ONE, "id": "multi_turn_base_3"}, "not scored here"),
        ({**ONE, "id": "simple_java_3"}, "not scored here"),
        ({**ONE, "question": []}, "no question"),
        ({**ONE, "function": [{"description": "nameless"}]}, "no question"),
        ({**ONE, "function": [{"name": "f", "parameters": {"properties": [1]}}]}, "no question"),
        ({**ONE, "ground_truth": ["weather.get(city='Oslo')"]}, "no answer"),
        (["a", "list"], "no question"),
        ({"messages": [{"role": "user", "content": "hello"}]}, "no answer"),
    ],
)
def test_a_row_without_question_or_answer_says_so(given: Any, reason: str) -> None:
    (found,) = asked(given)
    assert isinstance(found, RowError)
    assert found.reason == reason


def test_the_functions_stand_before_the_rows_own_system_turn() -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Oslo?"}]
    question = question_of({**ONE, "question": [turns]})
    system, user = question.messages
    assert system["role"] == "system"
    assert '"weather.get"' in system["content"]
    assert system["content"].endswith("\n\nBe brief.")
    assert user == turns[1]


def test_a_conversation_that_ends_in_calls_is_a_question() -> None:
    calls = [{"name": "weather.get", "arguments": {"city": "Oslo"}}]
    turns = [
        {"role": "system", "content": f"Call.\nAvailable functions:\n{json.dumps([WEATHER])}"},
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "content": json.dumps(calls)},
    ]
    question = question_of({"source": "own", "messages": turns})
    assert question.messages == tuple(turns[:2])
    assert question.group == "own"
    assert BFCL.score(question, json.dumps(calls)).value == 1.0
    assert BFCL.score(question, "[weather.get(city='Rome')]").value == 0.0


@pytest.mark.parametrize(
    "reply",
    [
        "I cannot help.",
        "[f(x=__import__('os').system('true'))][0]",
        "[f(x=9**9**9**9)]",
        "[f(x=((((9**64)**64)**64)**64)**64)]",
        "[f(x=1/0)]",
        "[f(x={[]: 1})]",
        "[f(x=lambda: 1)]",
        "[f(x='a' * 10**9)]",
        "[" * 5000,
        "f(" * 3000 + ")" * 3000,
        '[{"name": ' + "[" * 200_000,
        "[f(**{'a': 1}, x={**{}})]",
        "\0",
    ],
)
def test_what_is_no_call_is_refused_and_nothing_is_run(reply: str) -> None:
    with pytest.raises(NoCalls):
        calls_of(reply)


def test_arguments_are_read_as_the_published_checker_reads_them() -> None:
    text = "[a.b(i=-1, t=(1, [2.5]), d={'k': None}, n=name, c=g(), k=g(x=1), s=v[0], e=...)]"
    assert calls_of(text) == [
        (
            "a.b",
            {
                "i": -1,
                "t": (1, [2.5]),
                "d": {"k": None},
                "n": "name",
                "c": "g()",
                "k": {"g": {"x": 1}},
                "s": "v[0]",
                "e": "...",
            },
        )
    ]
