from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from vtrim.chat.conversation import Origin, RowError, conversation_of
from vtrim.chat.render import Renderer
from vtrim.chat.template import ChatTemplate, TemplateRefusal
from vtrim.chat.tool_calls import CallForm, learn_form

CALL = {"function": {"name": "f", "arguments": {"x": 1}}}
HEAD = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
TAIL = "{{ '<|im_end|>\n' }}{% endfor %}"
PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
WRITERS = {
    # as Hermes: an object, printed by the template
    "object": "{{ m['content'] }}{% for c in m['tool_calls'] %}{{ c['function']['name'] }}"
    "{{ c['function']['arguments'] | tojson }}{% endfor %}",
    # as DeepSeek: a text, and only beside null content
    "text beside null": "{% if m['content'] is none %}{% for c in m['tool_calls'] %}"
    "{{ c['type'] + c['function']['name'] + c['function']['arguments'] }}{% endfor %}"
    "{% else %}{{ m['content'] }}{% endif %}",
    "xml": "{{ m['content'] }}{% for c in m['tool_calls'] %}{{ '<' + c['function']['name'] }}"
    "{% for k, v in c['function']['arguments'].items() %}{{ ' ' ~ k ~ '=' ~ v }}{% endfor %}"
    "{{ '>' }}{% endfor %}",
    "none": "{{ m['content'] }}",
}


def with_template(tokenizer: Any, writer: str) -> Any:
    made = copy.deepcopy(tokenizer)
    made.chat_template = HEAD + WRITERS[writer] + TAIL + PROMPT
    return made


def asking(call: dict[str, Any], content: str | None = None) -> Any:
    turns = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": content, "tool_calls": [call]},
    ]
    return conversation_of({"messages": turns}, Origin("made.jsonl", 1))


def test_a_form_keeps_what_it_does_not_know() -> None:
    form = CallForm(null_content=True, as_text=True)
    plain = {"role": "assistant", "content": "hi"}
    assert form.apply(plain) is plain
    beside = form.apply({**plain, "tool_calls": [{"id": "7", **CALL}]})
    assert beside["content"] == "hi"  # null only where there is no text
    assert beside["tool_calls"] == [
        {"id": "7", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    ]
    assert form.apply({**plain, "content": "", "tool_calls": ["odd"]})["tool_calls"] == ["odd"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"x": 1}, {"x": 1}),
        ('{"x": 1}', {"x": 1}),
        ("", {}),
        (None, {}),
        ("{x", "{x"),
        ("[" * 5000, "[" * 5000),  # deeper than Python reads
        ("9" * 5000, "9" * 5000),  # more digits than it takes
    ],
    ids=["object", "text", "empty", "none", "broken", "deep", "long"],
)
def test_arguments_become_an_object_where_they_can(arguments: Any, expected: Any) -> None:
    form = CallForm(null_content=False, as_text=False)
    call = {"name": "f", "arguments": arguments}
    found = form.apply({"role": "assistant", "content": "", "tool_calls": [call]})
    assert found["tool_calls"][0]["function"]["arguments"] == expected


@pytest.mark.parametrize(
    ("writer", "expected"),
    [
        ("object", 'f{"x": 1}<|im_end|>'),
        ("text beside null", 'functionf{"x": 1}<|im_end|>'),
        ("xml", "<f x=1><|im_end|>"),
    ],
)
@pytest.mark.parametrize("as_text", [False, True])
def test_a_call_is_written_in_the_form_that_the_template_takes(
    bpe: Callable, writer: str, expected: str, as_text: bool
) -> None:
    call = copy.deepcopy(CALL)
    if as_text:
        call["function"]["arguments"] = json.dumps(CALL["function"]["arguments"])
    [sample] = ChatTemplate(with_template(bpe("llama3", "chatml"), writer)).samples(asking(call))
    assert sample.text[slice(*sample.spans[0])] == expected


def test_calls_beside_text_are_refused_where_the_template_would_drop_them(bpe: Callable) -> None:
    template = ChatTemplate(with_template(bpe("llama3", "chatml"), "text beside null"))
    assert template.samples(asking(CALL))
    with pytest.raises(TemplateRefusal, match="writes no tool calls beside text"):
        template.samples(asking(CALL, "let me look"))


def test_a_row_whose_calls_the_template_drops_is_skipped_and_named(bpe: Callable) -> None:
    renderer = Renderer(with_template(bpe("llama3", "chatml"), "none"))
    assert renderer.samples(asking(CALL)) == []
    assert renderer.skipped.counts == {"template refusal": 1}
    assert "made.jsonl:1: the chat template writes no tool calls" in renderer.skipped.lines()[0]


def test_a_template_that_refuses_every_probe_gets_the_first_form() -> None:
    assert learn_form(lambda _: None, "") == CallForm(null_content=False, as_text=False)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("writer", "arguments"),
    [
        # a template that writes the text as it stands writes the escape, which is harmless
        ("object", '{"a": "\\ud800"}'),
        ("object", {"a": nested(3000)}),
        ("object", {"a": 10**5000}),
        ("text beside null", {"a": nested(3000)}),
        ("text beside null", {"a": 10**5000}),
    ],
    ids=["surrogate", "deep", "long", "deep as text", "long as text"],
)
def test_arguments_that_cannot_be_written_stop_their_row_alone(
    bpe: Callable, writer: str, arguments: Any
) -> None:
    renderer = Renderer(with_template(bpe("llama3", "chatml"), writer))
    assert renderer.samples(asking({"function": {"name": "f", "arguments": arguments}})) == []
    assert renderer.skipped.counts == {"template refusal": 1}
    assert renderer.samples(asking(CALL))


def test_tools_nested_beyond_python_stop_their_row_alone(bpe: Callable) -> None:
    tokenizer = copy.deepcopy(bpe("llama3", "chatml"))
    tokenizer.chat_template = "{{ tools | tojson if tools }}" + tokenizer.chat_template
    renderer = Renderer(tokenizer)
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    for tools in ([{"name": "f"}], [{"name": nested(3000)}]):
        row = {"messages": turns, "tools": tools}
        renderer.samples(conversation_of(row, Origin("made.jsonl", 1)))
    assert renderer.skipped.counts == {"template refusal": 1}


@pytest.mark.parametrize(
    "keys",
    [
        {"function_call": '{"name": "f", "arguments": {"x": 1}}'},
        {"function_call": CALL["function"]},
        {"tool_calls": {"type": "function", **CALL}},
        {"tool_calls": json.dumps({"type": "function", **CALL})},
    ],
)
def test_calls_are_read_from_any_spelling_of_one(keys: dict[str, Any]) -> None:
    turn = {"role": "assistant", "content": None, **keys}
    found = conversation_of({"messages": [turn]}, Origin("made.jsonl", 1))
    assert found.messages[0]["tool_calls"] == [{"type": "function", **CALL}]


@pytest.mark.parametrize(
    "keys",
    [
        {"function_call": "f(1)"},
        {"tool_calls": "f(1)"},
        {"tool_calls": [5]},
        {"tool_calls": 5},
        {"tool_calls": [{"function": "f(1)"}]},
    ],
)
def test_calls_that_are_no_objects_are_refused_and_not_lost(keys: dict[str, Any]) -> None:
    turn = {"role": "assistant", "content": None, **keys}
    with pytest.raises(RowError, match="unreadable tool calls"):
        conversation_of({"messages": [turn]}, Origin("made.jsonl", 1))
