"""JSON over HTTP, against a real HTTP server that fails in scripted ways."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from vtrim.decoding import http_json
from vtrim.decoding.chat_server import (
    ChatServer,
    ServedReply,
)
from vtrim.decoding.http_json import (
    JsonServer,
    base_url,
    checked_key,
    message_of,
    retry_after,
)
from vtrim.decoding.regenerate import Request
from vtrim.errors import InputError, OptionError

sys.path.insert(0, str(Path(__file__).parents[1]))
from fake_server import Answer, FakeServer, completion, echo, serving

LAW: dict[str, Any] = {"max_new_tokens": 9, "temperature": 0.0, "top_p": 1.0, "seed": 4}
KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_json, "FIRST_WAIT", 0.001)


def asked(text: str = "red", row: int = 0, **extras: Any) -> Request:
    return Request(row, [{"role": "user", "content": text}], [], extras)


def reply(server: FakeServer, request: Request, **options: Any) -> ServedReply:
    law = options.pop("law", LAW)
    return ChatServer(JsonServer(server.url, **options), None, law).reply(request)


def after(failures: list[Answer]) -> Any:
    """Fails as told, then echoes."""
    rest: Iterator[Answer] = iter(failures)
    return lambda body, count: next(rest, None) or echo(body, count)


BUSY = [
    Answer(429, {"error": {"message": "slow down"}}),
    Answer(500, b"<html>oops</html>"),
    Answer(503, {"detail": "loading"}),
    Answer(200, completion("cut"), cut=10),
    Answer(200, b'{"choices": ['),
    Answer(200, b"[1]"),
    Answer(200, {"error": {"message": "overloaded"}}),
    Answer(200, completion("", reason="abort")),
    Answer(hang_up=True),
]


@pytest.mark.parametrize("failure", BUSY, ids=lambda one: f"{one.status}-{one.cut}-{one.body}"[:30])
def test_what_may_pass_is_tried_again(failure: Answer) -> None:
    told: list[str] = []
    with serving(after([failure, failure])) as server:
        http = JsonServer(server.url, on_retry=told.append)
        found = ChatServer(http, None, LAW).reply(asked())
    assert found.message["content"] == "RED"
    assert (len(server.asked), http.retries, len(told)) == (3, 2, 2)


@pytest.mark.parametrize("failure", BUSY, ids=lambda one: f"{one.status}-{one.cut}-{one.body}"[:30])
def test_what_does_not_pass_stops_with_the_address_and_the_last_failure(failure: Answer) -> None:
    with serving(lambda *_: failure) as server, pytest.raises(InputError) as stopped:
        reply(server, asked())
    assert len(server.asked) == http_json.TRIES
    line = str(stopped.value)
    assert line.startswith(f"{server.url}/v1/chat/completions: ")
    assert "9 tries" in line
    assert "Finished replies are kept" in line
    assert "\n" not in line


def test_the_wait_that_the_server_asks_for_is_honoured() -> None:
    busy = Answer(429, {}, headers={"Retry-After": "0.4"})
    with serving(after([busy])) as server:
        start = time.monotonic()
        reply(server, asked())
    assert 0.4 <= time.monotonic() - start < 5


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after(None) is None
    assert retry_after("2.5") == 2.5
    assert retry_after("-3") == 0.0
    assert retry_after("1e9") == http_json.LONGEST_TOLD_WAIT
    assert retry_after("soon") is None
    assert retry_after("nan") is None
    found = retry_after(formatdate(time.time() + 30, usegmt=True))
    assert found is not None
    assert 27 < found <= 31


def test_a_server_that_is_slower_than_the_timeout_is_named_with_the_option() -> None:
    slow = Answer(wait=0.6, body={})
    with serving(lambda *_: slow) as server, pytest.raises(InputError) as stopped:
        reply(server, asked(), timeout=0.1)
    assert "no answer within 0.1 s (--request-timeout) (3 tries)" in str(stopped.value)


@pytest.mark.parametrize("status", [401, 403, 404, 405, 308])
def test_other_refusals_stop_at_once_with_the_servers_own_words(status: int) -> None:
    failure = Answer(status, {"message": "no such thing"}, headers={"Location": "/elsewhere"})
    with serving(lambda *_: failure) as server, pytest.raises(InputError) as stopped:
        reply(server, asked())
    assert str(stopped.value).startswith(
        f"{server.url}/v1/chat/completions answered {status}: no such thing"
    )
    assert len(server.asked) == 1


def test_the_key_is_sent_and_never_shown() -> None:
    failure = Answer(401, {"error": {"message": f"Incorrect API key provided: {KEY}."}})
    with serving(lambda *_: failure) as server, pytest.raises(InputError) as stopped:
        reply(server, asked(), key=f" {KEY}\n")
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
    assert KEY not in str(stopped.value)
    assert "OPENAI_API_KEY" in str(stopped.value)
    with pytest.raises(OptionError) as refused:
        checked_key(f"{KEY}\nX-Other: 1")
    assert KEY not in str(refused.value)


def test_without_a_key_no_authorization_is_sent() -> None:
    with serving(echo) as server:
        reply(server, asked(), key="")
    assert all("Authorization" not in headers for headers in server.headers)


def test_a_server_that_is_not_there_is_said_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(InputError, match=f"127.0.0.1:{port}/v1: cannot be reached .*started"):
        ChatServer(JsonServer(f"http://127.0.0.1:{port}"), None, LAW)


@pytest.mark.parametrize(
    ("typed", "base"),
    [
        ("http://h:8000", "http://h:8000/v1"),
        ("http://h:8000/", "http://h:8000/v1"),
        ("http://h:8000/v1", "http://h:8000/v1"),
        ("https://h/openai/v1/chat/completions", "https://h/openai/v1"),
        ("http://[::1]:80", "http://[::1]:80/v1"),
    ],
)
def test_an_address_without_a_path_means_v1(typed: str, base: str) -> None:
    assert base_url(typed) == base


@pytest.mark.parametrize("typed", ["localhost:8000", "h", "", "ftp://h", "http://", "http://h:x"])
def test_an_address_that_is_none_is_refused(typed: str) -> None:
    with pytest.raises(OptionError, match="http://HOST:PORT"):
        base_url(typed)


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(OptionError) as refused:
        base_url("http://me:hunter2@h")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b'{"error": {"message": "a\\nb", "type": "t"}}', "a↵b"),
        (b'{"error": "tgi", "error_type": "v"}', "tgi"),
        (b'{"detail": [{"loc": ["body"], "msg": "m"}]}', '[{"loc": ["body"], "msg": "m"}]'),
        (b'{"code": 3}', '{"code": 3}'),
        (b"<html>\x1b[2J", "<html>␛[2J"),
        (b"\xff", "�"),
        (b"", "no message"),
        (b"null", "null"),
    ],
)
def test_an_errors_body_becomes_one_visible_line(body: bytes, line: str) -> None:
    assert message_of(body) == line
    assert len(message_of(b"x" * 10**6)) <= 400


def test_an_abort_ends_a_request_in_flight() -> None:
    with serving(lambda *_: Answer(wait=30, body={})) as server:
        http = JsonServer(server.url)
        chat = ChatServer(http, None, LAW)
        ended: list[BaseException] = []

        def ask() -> None:
            with pytest.raises(InputError) as stopped:
                chat.reply(asked())
            ended.append(stopped.value)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        while not server.asked:
            time.sleep(0.01)
        chat.abort()
        thread.join(5)
        assert ended
