"""``vtrim regenerate --server``: replies from an OpenAI-compatible server."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.cli import common
from vtrim.cli.regenerate_rows import Follow, Rows, write_replies

if TYPE_CHECKING:
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
    rows: Rows, output: Path, call: ServerCall, law: dict[str, Any]
) -> dict[str, Any]:
    """Asks and writes; returns the ``--json`` object."""
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

    def refuse(request: Request, message: str) -> None:
        rows.skipped.add("refused by the server", request.origin, message)

    def answer(part: PartFile, follow: Follow) -> tuple[Totals, dict[str, Any]]:
        totals = serve_rows(rows.unrendered(), server, part, call.concurrency, follow, refuse)
        with_ids = part.count_ids(totals.order)
        return totals, {
            "model": server.model,
            "rows_with_token_ids": with_ids,
            "retries": http.retries,
        }

    settings = {"target": server.model, "through": "server", **law}
    result = write_replies(rows, output, settings, answer)
    _tell_kinds(result)
    return result


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
