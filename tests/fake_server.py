"""A real HTTP server in a thread that answers completions as a script says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """What to answer. cut: bytes of the body that are left out though announced; wait: [s]."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = 0
    wait: float = 0.0
    hang_up: bool = False


Script = Callable[[dict[str, Any], int], Answer]
POSTS = ("/v1/chat/completions", "/v1/completions", "/generate")


def completion(text: str, reason: str = "stop", **more: Any) -> dict[str, Any]:
    """A chat completion that says ``text``."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {
        "choices": [choice],
        "usage": {"completion_tokens": len(text.split())},
        **more,
    }


def echo(body: dict[str, Any], _count: int) -> Answer:
    """Says the last message in capitals."""
    return Answer(body=completion(body["messages"][-1]["content"].upper()))


def events(*values: dict[str, Any]) -> bytes:
    """A stream of events, ended as it should be."""
    lines = [*(json.dumps(value) for value in values), "[DONE]"]
    return "".join(f"data: {line}\n\n" for line in lines).encode()


class FakeServer:
    """asked: bodies of all completions, in order; headers: of all requests; pages: of GET.

    counters: what a script keeps a record in, where it does.
    """

    def __init__(self, script: Script, models: list[dict[str, Any]]) -> None:
        self.script = script
        self.models = models
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.pages: dict[str, Callable[[], Answer]] = {}
        self.counters: Any = None
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.http = _Http(("127.0.0.1", 0), _handler(self))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def answer(self, body: dict[str, Any]) -> Answer:
        with self.lock:
            self.asked.append(body)
            count = len(self.asked)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            found = self.script(body, count)
            time.sleep(found.wait)
            return found
        finally:
            with self.lock:
                self.at_once -= 1


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # of 5, connections that come together are reset


@contextmanager
def serving(script: Script, *names: str, **entry: Any) -> Iterator[FakeServer]:
    """A started server for the models ``names`` (``tiny`` alone by default)."""
    models = [{"id": name, "object": "model", **entry} for name in names or ("tiny",)]
    server = FakeServer(script, models)
    thread = threading.Thread(target=server.http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()
        thread.join()


def _handler(server: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.headers.append(dict(self.headers))
            if self.path in server.pages:
                self._send(server.pages[self.path]())
                return
            found = self.path == "/v1/models"
            self._send(Answer(200 if found else 404, {"data": server.models} if found else None))

        def do_POST(self) -> None:
            server.headers.append(dict(self.headers))
            assert self.path in POSTS
            length = int(self.headers["Content-Length"])
            sent = self.rfile.read(length)
            if len(sent) < length:
                return  # the client has left: a traceback here would cut into its own last line
            self._send(server.answer(json.loads(sent)))

        def _send(self, answer: Answer) -> None:
            if answer.hang_up:
                return
            body = answer.body if isinstance(answer.body, bytes) else _encoded(answer.body)
            try:
                self.send_response(answer.status)
                self.send_header("Content-Length", str(len(body)))
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body[: len(body) - answer.cut])
            except OSError:
                return  # the client has left

        def log_message(self, *_: Any) -> None:
            return

    return Handler


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()
