"""Rows answered by a server, several at once; each is written down as it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from vtrim.decoding.chat_server import ChatServer, ServedReply
from vtrim.decoding.http_json import RequestRefused
from vtrim.decoding.regenerate import PartFile, Request, Totals, reply_row
from vtrim.errors import InputError

REFUSED_AT_FIRST = 20  # rows refused before the first reply: then it is not the rows' fault


def serve_rows(
    requests: Iterable[Request],
    server: ChatServer,
    part: PartFile,
    concurrency: int,
    advance: Callable[[int, int], None],
    refuse: Callable[[Request, str], None],
    check: Callable[[ServedReply], None],
) -> Totals:
    """Asks for every reply that ``part`` lacks; ``advance(rows, tokens)`` follows each.

    A row that the server does not take is told to ``refuse`` with the server's message. ``check``
    sees each reply before it is written; what it raises ends the work.

    Raises:
        InputError: the server fails for good, or refuses everything.
    """
    desk = _Desk(server, part, advance, refuse, check)
    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="reply")
    try:
        for request in requests:
            if part.has(request):
                desk.totals.order.append(request.row)
                desk.totals.resumed += 1
                advance(1, 0)
                continue
            desk.pending[pool.submit(server.reply, request)] = request
            while len(desk.pending) >= concurrency:
                desk.take()
        while desk.pending:
            desk.take()
    finally:
        server.abort()  # what is in flight on the way out is not waited for
        pool.shutdown(cancel_futures=True)
    return desk.totals


class _Desk:
    """Where finished requests are taken in, on one thread."""

    def __init__(
        self,
        server: ChatServer,
        part: PartFile,
        advance: Callable[[int, int], None],
        refuse: Callable[[Request, str], None],
        check: Callable[[ServedReply], None],
    ) -> None:
        self.totals = Totals()
        self.pending: dict[Future[ServedReply], Request] = {}
        self._server, self._part = server, part
        self._advance, self._refuse, self._check = advance, refuse, check
        self._num_refused = 0

    def take(self) -> None:
        """Waits for the next finished requests and writes their replies.

        Raises:
            InputError: one failed for good; those that did not are written first.
        """
        done, _ = wait(self.pending, return_when=FIRST_COMPLETED)
        for future in sorted(done, key=lambda one: one.exception() is not None):
            request = self.pending.pop(future)
            try:
                self._write(request, future.result())
            except RequestRefused as refusal:
                self._note_refusal(request, refusal)

    def _write(self, request: Request, reply: ServedReply) -> None:
        self._check(reply)
        self._part.append(
            request, reply_row(request, reply.message, reply.finish_reason, reply.ids)
        )
        self.totals.order.append(request.row)
        self.totals.add(reply.tokens, reply.finish_reason)
        self._advance(1, reply.tokens)

    def _note_refusal(self, request: Request, refusal: RequestRefused) -> None:
        self._num_refused += 1
        if self._num_refused >= REFUSED_AT_FIRST and not self.totals.order:
            raise InputError(f"{self._server.base} refuses every row: {refusal}") from refusal
        self._refuse(request, str(refusal))
        self._advance(1, 0)
