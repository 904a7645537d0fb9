"""The rows that ``vtrim regenerate`` answers, and the file it writes the replies to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.cli import common
from vtrim.errors import InputError, OptionError

if TYPE_CHECKING:
    from vtrim.chat.conversation import Conversation
    from vtrim.chat.skips import SkipLog
    from vtrim.decoding.regenerate import PartFile, Request, Totals

PromptIds = Callable[["list[dict[str, Any]]", "tuple[Any, ...] | None"], "list[int]"]
# rows finished and tokens generated since it was last told
Follow = Callable[[int, int], None]


def parse_shard(text: str) -> tuple[int, int]:
    """``i/n`` as two numbers.

    Raises:
        OptionError: not of that form, or i outside 1..n.
    """
    try:
        index, count = (int(number) for number in text.split("/"))
    except ValueError as error:
        raise OptionError(f"--shard {text}: write it as i/n, e.g. 1/2.") from error
    if not 1 <= index <= count:
        raise OptionError(f"--shard {text}: i must lie between 1 and n.")
    return index, count


@dataclass
class Rows:
    """The rows asked for; ``skipped`` says why some of them cannot be used."""

    paths: list[Path]
    skip_bad_rows: bool
    num_prompts: int | None
    shard: tuple[int, int]
    skipped: SkipLog

    def count(self) -> int:
        """Number of rows, read once ahead for the progress bar; bad input shows up here."""
        from vtrim.chat.skips import SkipLog

        return sum(1 for _ in self._conversations(SkipLog()))

    def unrendered(self) -> Iterator[Request]:
        """Prompts as messages only; rows without one are noted."""
        for row, conversation in self._answerable():
            request = _request(row, conversation)
            if _asks(request):
                yield request
            else:
                self.skipped.add("empty prompt", conversation.origin)

    def rendered(self, prompt_ids: PromptIds, context: int) -> Iterator[Request]:
        """Prompts with their token ids; rows without one that fits the context are noted."""
        from vtrim.chat.template import TemplateRefusal

        for row, conversation in self._answerable():
            request = _request(row, conversation)
            try:
                ids = prompt_ids(request.messages, conversation.tools) if _asks(request) else []
            except TemplateRefusal as error:
                self.skipped.add("template refusal", conversation.origin, str(error))
                continue
            length = len(ids)
            if length == 0:
                self.skipped.add("empty prompt", conversation.origin)
            elif length >= context:
                detail = f"{length} tokens, the target's context has {context}"
                self.skipped.add("prompt too long", conversation.origin, detail)
            else:
                yield replace(request, prompt_ids=ids)

    def _answerable(self) -> Iterator[tuple[int, Conversation]]:
        """(row number, conversation) of this shard, without rows whose turns are not told apart."""
        for row, conversation in self._conversations(self.skipped):
            if conversation.text is None:
                yield row, conversation
            else:
                detail = "its turns are not told apart"
                self.skipped.add("already rendered text", conversation.origin, detail)

    def _conversations(self, skipped: SkipLog) -> Iterator[tuple[int, Conversation]]:
        """(row number, conversation) of this shard; numbers run over all readable rows."""
        from vtrim.chat.read import ReadOptions, read_conversations

        options = ReadOptions(skip_bad_rows=self.skip_bad_rows)
        stream = read_conversations(self.paths, options=options, skipped=skipped)
        index, count = self.shard
        return islice(islice(enumerate(stream), self.num_prompts), index - 1, None, count)


def _request(row: int, conversation: Conversation) -> Request:
    """The prompt of a row, not rendered yet."""
    from vtrim.decoding.regenerate import Request, before_last_reply

    extras: dict[str, Any] = {}
    if conversation.source is not None:
        extras["source"] = conversation.source
    if conversation.tools is not None:
        extras["tools"] = list(conversation.tools)
    messages = before_last_reply(conversation.messages)
    return Request(row, messages, [], extras, conversation.origin)


def _asks(request: Request) -> bool:
    return any(message["content"].strip() for message in request.messages)


def write_replies(
    rows: Rows,
    output: Path,
    settings: dict[str, Any],
    answer: Callable[[PartFile, Follow], tuple[Totals, dict[str, Any]]],
) -> dict[str, Any]:
    """Has every row answered, and writes them in order; returns the ``--json`` object.

    settings: what replies of one file have in common. answer: gives the totals, and what else the
    result says.

    Raises:
        InputError: no row has a prompt, or all are refused.
    """
    from vtrim.decoding.regenerate import PartFile

    start = time.perf_counter()
    with (
        common.progress("replies", total=rows.count()) as advance,
        closing(PartFile(output, settings)) as part,
    ):
        totals, more = answer(part, _follow(advance, start))
        _report_skipped(rows, totals)
        part.finish(output, sorted(totals.order))
    seconds = time.perf_counter() - start
    return {
        "rows": totals.rows + totals.resumed,
        "rows_resumed": totals.resumed,
        "rows_skipped": rows.skipped.counts,
        "reply_tokens": totals.reply_tokens,
        "stopped_share": totals.stopped / totals.rows if totals.rows else None,
        "tokens_per_second": totals.reply_tokens / seconds,
        "seconds": seconds,
        **more,
        "artifact": str(output),
    }


def _follow(advance: Any, start: float) -> Follow:
    """Moves the bar, and shows the rate since ``start``."""
    tokens = 0

    def follow(count: int, new_tokens: int) -> None:
        nonlocal tokens
        tokens += new_tokens
        rate = tokens / (time.perf_counter() - start)
        advance(count, f"replies, {rate:.0f} tokens/s")

    return follow


def _report_skipped(rows: Rows, totals: Totals) -> None:
    """Says what was left out.

    Raises:
        InputError: that is everything.
    """
    for line in rows.skipped.lines():
        common.warn(f"skipped {line}")
    if not totals.order:
        why = "; ".join(rows.skipped.lines()) or "this shard is empty"
        raise InputError(f"{rows.paths[0]}: no row with a prompt to answer ({why}).")
