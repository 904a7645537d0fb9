"""Replies from a server: what is asked of a real HTTP server, and how its answers are read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from vtrim.decoding import http_json
from vtrim.decoding.chat_server import (
    ChatServer,
    ServedReply,
    parse_reply,
    row_seed,
    wire_messages,
)
from vtrim.decoding.http_json import (
    JsonServer,
    RequestRefused,
    TryAgain,
)
from vtrim.decoding.regenerate import Request
from vtrim.errors import OptionError

sys.path.insert(0, str(Path(__file__).parents[1]))
from fake_server import Answer, FakeServer, completion, echo, serving

LAW: dict[str, Any] = {"max_new_tokens": 9, "temperature": 0.0, "top_p": 1.0, "seed": 4}


@pytest.fixture(autouse=True)
def no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_json, "FIRST_WAIT", 0.001)


def asked(text: str = "red", row: int = 0, **extras: Any) -> Request:
    return Request(row, [{"role": "user", "content": text}], [], extras)


def reply(server: FakeServer, request: Request, **options: Any) -> ServedReply:
    law = options.pop("law", LAW)
    return ChatServer(JsonServer(server.url, **options), None, law).reply(request)


def test_the_request_says_what_the_options_say() -> None:
    with serving(echo) as server:
        found = reply(server, asked("red blue"))
    assert found.message == {"role": "assistant", "content": "RED BLUE"}
    assert (found.finish_reason, found.ids, found.tokens) == ("stop", None, 2)
    assert server.asked == [
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "red blue"}],
            "max_tokens": 9,
            "temperature": 0.0,
            "top_p": 1.0,
            "return_token_ids": True,
        }
    ]


def test_above_temperature_0_each_row_draws_with_a_seed_of_its_own() -> None:
    law = {**LAW, "temperature": 0.7, "top_p": 0.9}
    with serving(echo) as server:
        for row in (0, 1):
            reply(server, asked(row=row), law=law)
    first, second = server.asked
    assert (first["temperature"], first["top_p"]) == (0.7, 0.9)
    assert first["seed"] == row_seed(4, 0) != second["seed"] == row_seed(4, 1)
    assert 0 <= first["seed"] < 2**31
    assert row_seed(5, 0) != row_seed(4, 0)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_row_that_is_refused_brings_the_servers_own_words(status: int) -> None:
    words = "This model's maximum context length is 128 tokens."
    refusal = Answer(status, {"error": {"message": words}})
    with serving(lambda *_: refusal) as server, pytest.raises(RequestRefused) as refused:
        reply(server, asked())
    assert str(refused.value) == words
    assert len(server.asked) == 1


def test_the_only_model_is_the_default_and_any_other_name_is_refused_with_those_served() -> None:
    with serving(echo, "a", "b") as server:
        http = JsonServer(server.url)
        assert ChatServer(http, "b", LAW).model == "b"
        with pytest.raises(OptionError, match=r"--model c: .* does not serve it.* serves: a, b\."):
            ChatServer(http, "c", LAW)
        with pytest.raises(OptionError, match=r"serves a, b: name one model with --model"):
            ChatServer(http, None, LAW)


def test_ids_are_recorded_as_vllm_tells_them() -> None:
    answer = completion("x", prompt_token_ids=[1, 2])
    answer["choices"][0]["token_ids"] = [3, 4]
    found = parse_reply(answer)
    assert (found.ids, found.tokens) == (([1, 2], [3, 4]), 2)


def test_ids_are_recorded_as_sglang_tells_them() -> None:
    answer = completion("x")
    answer["choices"][0].update(
        prompt_token_ids=[1, 2],
        meta_info={"output_token_logprobs": [[-0.5, 3, None], [-0.1, 4, None]]},
    )
    assert parse_reply(answer).ids == ([1, 2], [3, 4])
    with serving(echo, owned_by="sglang") as server:
        reply(server, asked())
    assert server.asked[0]["return_meta_info"] is True
    assert server.asked[0]["logprobs"] is True


@pytest.mark.parametrize(("owner", "top_k"), [("vllm", -1), ("sglang", -1), ("llamacpp", 0)])
def test_what_a_server_adds_to_the_law_by_itself_is_undone(owner: str, top_k: int) -> None:
    with serving(echo, owned_by=owner) as server:
        reply(server, asked())
    assert (server.asked[0]["top_k"], server.asked[0]["min_p"]) == (top_k, 0.0)


@pytest.mark.parametrize("prompt", [None, [], ["1"], [True], "12"])
def test_ids_that_are_none_are_not_recorded(prompt: Any) -> None:
    answer = completion("x", prompt_token_ids=prompt)
    answer["choices"][0]["token_ids"] = [3]
    assert parse_reply(answer).ids is None


def test_a_server_that_does_not_know_the_option_for_ids_is_asked_without_it() -> None:
    def strict(body: dict[str, Any], count: int) -> Answer:
        if "return_token_ids" in body:
            return Answer(400, {"error": {"message": "Unrecognized argument: return_token_ids"}})
        return echo(body, count)

    with serving(strict) as server:
        chat = ChatServer(JsonServer(server.url), None, LAW)
        assert [chat.reply(asked(row=row)).message["content"] for row in (0, 1)] == ["RED", "RED"]
    assert len(server.asked) == 3, "the second row knows already"


@pytest.mark.parametrize(
    ("said", "reason"),
    [("stop", "stop"), ("tool_calls", "stop"), ("function_call", "stop"), ("length", "length")],
)
def test_a_reply_is_stopped_or_cut(said: str, reason: str) -> None:
    assert parse_reply(completion("x", reason=said)).finish_reason == reason


def test_a_withheld_reply_is_a_refusal_and_an_unknown_end_is_tried_again() -> None:
    with pytest.raises(RequestRefused, match="content_filter"):
        parse_reply(completion("", reason="content_filter"))
    with pytest.raises(TryAgain, match="None"):
        parse_reply(completion("", reason=None))  # type: ignore[arg-type]


def test_calls_and_reasoning_of_a_reply_are_kept() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    answer = completion("", reason="tool_calls")
    answer["choices"][0]["message"].update(content=None, tool_calls=[call], reasoning="hm")
    assert parse_reply(answer).message == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "hm",
        "tool_calls": [call],
    }


def test_messages_are_sent_as_the_api_wants_them() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "q", "parts_left_out": 1},
        {
            "role": "assistant",
            "content": "",
            "weight": 0,
            "tool_calls": [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "id": "mine"}],
        },
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2"},
    ]
    before = json.dumps(messages)
    user, calls, one, two = wire_messages(messages)
    assert user == {"role": "user", "content": "q"}
    assert sorted(calls) == ["content", "role", "tool_calls"]
    first, second = calls["tool_calls"]
    assert json.loads(first["function"]["arguments"]) == {"a": 1}
    assert first["type"] == "function"
    assert (one["tool_call_id"], two["tool_call_id"]) == (first["id"], second["id"])
    assert second["id"] == "mine"
    assert json.dumps(messages) == before


def test_tools_of_a_row_are_sent_in_the_apis_form() -> None:
    bare, whole = {"name": "f"}, {"type": "function", "function": {"name": "g"}}
    with serving(echo) as server:
        reply(server, asked(tools=[bare, whole]))
    assert server.asked[0]["tools"] == [{"type": "function", "function": bare}, whole]
