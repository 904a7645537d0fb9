"""JSON over HTTP to one server, from many threads: tries again what may pass, stops on what won't.

Written on the standard library: which HTTP client comes with huggingface_hub changes with its
version. Redirects are not followed and proxies of the environment are not used.
"""

from __future__ import annotations

import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, TypeVar
from urllib.parse import urlsplit

from vtrim.chat.visible import one_line, short
from vtrim.errors import InputError, OptionError

TRIES = 9  # waits of 1, 2, 4, ... 60 s between them: three minutes, enough to restart a server
SLOW_TRIES = 3  # of a request that timed out
FIRST_WAIT = 1.0  # [s]
LONGEST_WAIT = 60.0  # [s], of our own accord
LONGEST_TOLD_WAIT = 600.0  # [s], when the server says how long
ROW_REFUSED = (400, 413, 422)
Answer = TypeVar("Answer")
_BUSY = (408, 425, 429)
_KEPT = "Finished replies are kept: run the same command again."


class RequestRefused(Exception):  # noqa: N818 - a refusal, reported for a row
    """The server refuses this request, and perhaps no other; the text is the server's own."""


class TryAgain(Exception):  # noqa: N818 - no error yet
    """A failure that may pass; a reader of answers may raise it too.

    after: [s] to wait, where the server says.
    """

    def __init__(self, problem: str, after: float | None = None, tries: int = TRIES) -> None:
        super().__init__(problem)
        self.after = after
        self.tries = tries


class JsonServer:
    """A server at ``base``, e.g. ``http://localhost:8000/v1``; ``on_retry`` hears of problems.

    key: sent as a bearer token, never shown. timeout: [s] without a byte from the server.

    Raises:
        OptionError: the address is none, or the key cannot be sent.
    """

    def __init__(
        self,
        base: str,
        *,
        key: str | None = None,
        timeout: float = 600.0,
        on_retry: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.base = base_url(base)
        self.timeout = timeout
        self.retries = 0
        self._key = checked_key(key)
        self._on_retry = on_retry
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._open: set[socket.socket | None] = set()

    def get(self, path: str) -> dict[str, Any]:
        """The answer to GET; a server that cannot be reached is not waited for."""
        return self._call("GET", path, None, lambda answer: answer)

    def post(
        self, path: str, value: dict[str, Any], read: Callable[[dict[str, Any]], Answer]
    ) -> Answer:
        """What ``read`` makes of the answer to POST.

        Raises:
            RequestRefused: the server finds fault with this request.
            InputError: it cannot be reached, or answers with an error, again and again.
        """
        return self._call("POST", path, value, read)

    def abort(self) -> None:
        """Ends all requests in flight, so that their threads can be joined."""
        self._stopped.set()
        with self._lock:
            for one in filter(None, self._open):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _call(
        self,
        method: str,
        path: str,
        value: dict[str, Any] | None,
        read: Callable[[dict[str, Any]], Answer],
    ) -> Answer:
        attempt = 0
        while True:
            attempt += 1
            try:
                return read(_parsed(self._once(method, path, value)))
            except TryAgain as problem:
                if self._stopped.is_set() or attempt >= problem.tries:
                    raise InputError(
                        f"{self.base}{path}: {problem} ({attempt} tries). {_KEPT}"
                    ) from problem
                with self._lock:
                    self.retries += 1
                self._on_retry(str(problem))
                own = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (attempt - 1)) * random.uniform(0.8, 1.2)  # noqa: S311
                self._stopped.wait(own if problem.after is None else problem.after)

    def _once(self, method: str, path: str, value: dict[str, Any] | None) -> bytes:
        """The body of a good answer to one try.

        Raises:
            TryAgain: it failed in a way that may pass.
        """
        try:
            status, headers, body = self._exchange(method, path, value)
        except TimeoutError as error:
            slow = f"no answer within {self.timeout:g} s (--request-timeout)"
            raise TryAgain(slow, tries=SLOW_TRIES) from error
        except ssl.SSLCertVerificationError as error:
            raise InputError(
                f"{self.base}: its certificate is not trusted ({error.verify_message}). Name the "
                "file of your own authority in SSL_CERT_FILE."
            ) from error
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            if method == "GET":
                raise InputError(
                    f"{self.base}: cannot be reached ({reason}). Is the server started?"
                ) from error
            raise TryAgain(f"connection failed ({reason})") from error
        if status == 200:
            return body
        message = self._without_key(message_of(body))
        if status in _BUSY or status >= 500:
            raise TryAgain(f"answered {status}: {message}", retry_after(headers("Retry-After")))
        if status in ROW_REFUSED and method == "POST":
            raise RequestRefused(message)
        hint = " Set OPENAI_API_KEY to a valid key." if status in (401, 403) else ""
        raise InputError(f"{self.base}{path} answered {status}: {message}{hint}")

    def _exchange(
        self, method: str, path: str, value: dict[str, Any] | None
    ) -> tuple[int, Callable[[str], str | None], bytes]:
        """Status, header getter and whole body of one exchange."""
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        data = None if value is None else json.dumps(value).encode()
        with self._connection() as connection:
            connection.request(method, urlsplit(self.base).path + path, data, headers)
            with connection.getresponse() as answer:
                return answer.status, answer.getheader, answer.read()

    @contextmanager
    def _connection(self) -> Iterator[HTTPConnection]:
        """A new connection, which ``abort`` can end."""
        parts = urlsplit(self.base)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(str(parts.hostname), parts.port, timeout=self.timeout)
        own: socket.socket | None = None
        try:
            connection.connect()
            own = connection.sock  # the connection gives it away once the answer begins
            with self._lock:
                self._open.add(own)
            if self._stopped.is_set():
                raise ConnectionAbortedError("stopped")
            yield connection
        finally:
            with self._lock:
                self._open.discard(own)
            connection.close()

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def base_url(typed: str) -> str:
    """The address below which the API lies: ``/v1`` where no path is typed.

    Raises:
        OptionError: it is no http or https address, or holds a password.
    """
    parts = urlsplit(typed.strip().rstrip("/"))
    try:
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise OptionError(f"--server {typed}: write it as http://HOST:PORT.")
    if parts.username or parts.password:
        raise OptionError("--server: no password in the address; set OPENAI_API_KEY.")
    path = parts.path.removesuffix("/chat/completions") or "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}"


def checked_key(key: str | None) -> str | None:
    """The key without white space around it; None where there is none.

    Raises:
        OptionError: it holds a character that no header can carry. The key is not shown.
    """
    bare = (key or "").strip()
    if not (bare.isascii() and bare.isprintable()):
        raise OptionError("OPENAI_API_KEY: holds a character that cannot be sent.")
    return bare or None


def retry_after(header: str | None) -> float | None:
    """Seconds to wait, from a Retry-After header of seconds or of a date; None without one."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - time.time()
        except ValueError:
            return None
    return min(max(seconds, 0.0), LONGEST_TOLD_WAIT) if seconds == seconds else None


def message_of(body: bytes) -> str:
    """What an error's body says, in one line: its message where it is JSON, else its text."""
    text = body.decode(errors="replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = text
    while isinstance(found, dict):
        inner = next((found[key] for key in _MESSAGE_KEYS if found.get(key)), None)
        found = json.dumps(found) if inner is None else inner
    shown = found if isinstance(found, str) else json.dumps(found)
    return one_line(short(shown, _LONGEST_MESSAGE)) or "no message"


_MESSAGE_KEYS = ("error", "message", "detail")
_LONGEST_MESSAGE = 500


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise TryAgain(f"the answer is not whole JSON: {message_of(body[:200])}") from error
    if not isinstance(value, dict):
        raise TryAgain(f"the answer is no JSON object: {message_of(body[:200])}")
    return value
