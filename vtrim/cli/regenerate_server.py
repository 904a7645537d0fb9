"""``vtrim regenerate --server``: replies from an OpenAI-compatible server."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.cli import common
from vtrim.cli.regenerate_rows import Follow, Rows, write_replies
from vtrim.errors import MismatchError

if TYPE_CHECKING:
    from vtrim.decoding.chat_server import ServedReply
    from vtrim.decoding.regenerate import PartFile, Request, Totals

KEY_ENV = "OPENAI_API_KEY"


@dataclass(frozen=True, kw_only=True)
class ServerCall:
    """The server as the options name it. timeout: [s] without a byte of an answer."""

    url: str
    model: str | None
    concurrency: int
    timeout: float


def answer_by_server(
    rows: Rows, output: Path, call: ServerCall, law: dict[str, Any], tokenizer: Any
) -> dict[str, Any]:
    """Asks and writes; returns the ``--json`` object.

    tokenizer: of the target that the server should have; None where none is named.

    Raises:
        MismatchError: the server's token ids are those of another tokenizer.
    """
    from vtrim.decoding.chat_server import ChatServer
    from vtrim.decoding.http_json import JsonServer
    from vtrim.decoding.served_rows import serve_rows

    told: set[str] = set()

    def retried(problem: str) -> None:
        if problem not in told:  # the same from many threads, or again and again
            told.add(problem)
            common.warn(f"{call.url}: {problem}; trying again")

    http = JsonServer(call.url, key=os.environ.get(KEY_ENV), timeout=call.timeout, on_retry=retried)
    server = ChatServer(http, call.model, law)
    common.note(f"{server.model} at {server.base}, {call.concurrency} requests at once")

    check = IdCheck(server.model, tokenizer)

    def refuse(request: Request, message: str) -> None:
        rows.skipped.add("refused by the server", request.origin, message)

    def answer(part: PartFile, follow: Follow) -> tuple[Totals, dict[str, Any]]:
        totals = serve_rows(
            rows.unrendered(), server, part, call.concurrency, follow, refuse, check
        )
        with_ids = part.count_ids(totals.order)
        return totals, {
            "model": server.model,
            "rows_with_token_ids": with_ids,
            "retries": http.retries,
        }

    settings = {"target": server.model, "through": "server", **check.settings, **law}
    result = write_replies(rows, output, settings, answer)
    _tell_kinds(result)
    return result


class IdCheck:
    """Holds the first reply that comes with token ids against the target's tokenizer."""

    def __init__(self, model: str, tokenizer: Any) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._done = tokenizer is None

    @property
    def settings(self) -> dict[str, Any]:
        """What replies of one file must have in common for it."""
        if self._tokenizer is None:
            return {}
        from vtrim.models.hub import tokenizer_fingerprint

        return {"tokenizer_fingerprint": tokenizer_fingerprint(self._tokenizer)}

    def __call__(self, reply: ServedReply) -> None:
        """Refuses ids that do not spell the reply's text; a reply without either proves nothing.

        Raises:
            MismatchError: they do not.
        """
        said = _words(reply.message["content"])
        if self._done or reply.ids is None or not said:
            return
        ids = reply.ids[1]
        known = max(ids) < len(self._tokenizer) and min(ids) >= 0
        read = _words(self._tokenizer.decode(ids, skip_special_tokens=True)) if known else ""
        # the server may have taken thoughts and calls out of the text: it is a part of what is read
        if said not in read:
            raise MismatchError(
                f"{self._model}: the server's token ids are not of the target's tokenizer: "
                f"{said[:40]!r} reads {read[:40]!r} there. Serve that "
                "target, or name the one that is served."
            )
        self._done = True


def _words(text: str) -> str:
    """The text with white space told alike: servers and tokenizers differ in that."""
    return " ".join(text.split())


def _tell_kinds(result: dict[str, Any]) -> None:
    """Says how many rows have token ids, and what the others lack."""
    with_ids, without = result["rows_with_token_ids"], result["rows"]
    without -= with_ids
    common.note(f"{with_ids:,} rows with token ids as the server told them, {without:,} without")
    if without and result["stopped_share"] not in (None, 1.0):
        common.warn(
            "rows without token ids whose finish_reason is length will be learned with an end of "
            "turn that the target never wrote; a larger --max-new-tokens makes fewer of them"
        )
