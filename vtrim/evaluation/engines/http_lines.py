"""Answers of a server line by line, as they come: streams of events, metrics, facts about it.

Asked once: a try again would be counted by the engine and timed in nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from vtrim.decoding.http_json import JsonServer, base_url, message_of
from vtrim.errors import InputError, OptionError

KEPT = " Finished prompts are kept: run the same command again."
_END = "[DONE]"
_ABSENT = (404, 405, 501)


class LineServer(JsonServer):
    """A server whose address may end in ``/v1``; paths are those of the server itself."""

    def __init__(self, address: str, option: str, *, key: str | None, timeout: float) -> None:
        """Raises: OptionError when the address is none; names the option it was typed with."""
        try:
            super().__init__(address, key=key, timeout=timeout)
        except OptionError as error:
            raise OptionError(str(error).replace("--server", option, 1)) from error
        self.base = base_url(address).removesuffix("/v1")

    def facts(self, path: str) -> dict[str, Any] | None:
        """The JSON object at a path; None where there is none.

        Raises:
            InputError: the server cannot be reached, or fails.
        """
        text = self.text(path)
        try:
            value = None if text is None else json.loads(text)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def text(self, path: str) -> str | None:
        """The text at a path; None where the server has no such path."""
        with self._answer("GET", path, None) as answer:
            if answer.status in _ABSENT:
                return None
            self._check(answer, path)
            return answer.read().decode(errors="replace")

    def events(self, path: str, value: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of a streamed answer to POST, up to the one that says that all was said.

        Raises:
            InputError: the server cannot be reached, refuses, reports an error, or stops half-way.
        """
        with self._answer("POST", path, value) as answer:
            self._check(answer, path)
            for line in answer:
                data = line.decode(errors="replace").strip()
                if not data.startswith("data:"):
                    continue  # an empty line, a comment, the name of an event
                data = data.removeprefix("data:").strip()
                if data == _END:
                    return
                if not line.endswith(b"\n"):
                    break  # cut
                yield self._event(data, path)
        raise InputError(f"{self.base}{path}: the answer ended half-way.{KEPT}")

    def _event(self, data: str, path: str) -> dict[str, Any]:
        try:
            event = json.loads(data)
        except (ValueError, RecursionError) as error:
            said = message_of(data[:200].encode())
            raise InputError(f"{self.base}{path}: an event is no JSON: {said}.{KEPT}") from error
        if not isinstance(event, dict) or event.get("error"):
            raise InputError(f"{self.base}{path}: {message_of(data.encode())}.{KEPT}")
        return event

    def _check(self, answer: HTTPResponse, path: str) -> None:
        """Raises: InputError when it is no good answer."""
        if answer.status == 200:
            return
        said = self._without_key(message_of(answer.read()))
        hint = " Set OPENAI_API_KEY to a valid key." if answer.status in (401, 403) else ""
        raise InputError(f"{self.base}{path} answered {answer.status}: {said}{hint}")

    @contextmanager
    def _answer(
        self, method: str, path: str, value: dict[str, Any] | None
    ) -> Iterator[HTTPResponse]:
        """An answer whose body is still to be read."""
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        data = None if value is None else json.dumps(value).encode()
        kept = "" if value is None else KEPT  # what is asked by GET comes before the first prompt
        try:
            with self._connection() as connection:
                connection.request(method, urlsplit(self.base).path + path, data, headers)
                with connection.getresponse() as answer:
                    yield answer
        except TimeoutError as error:
            raise InputError(
                f"{self.base}{path}: nothing came for {self.timeout:g} s (--request-timeout).{kept}"
            ) from error
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise InputError(
                f"{self.base}{path}: the connection failed ({reason}). Is the server running?{kept}"
            ) from error
