"""Prompts to measure on: a file of the user's, or the run's held-out conversations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from vtrim.artifacts import Run
from vtrim.chat.columns import listed
from vtrim.chat.conversation import (
    Conversation,
    Message,
    Origin,
    RowError,
    conversation_of,
    is_heldout,
)
from vtrim.chat.read import LEAVE_OUT, check_text, read_rows
from vtrim.chat.render import Renderer
from vtrim.chat.run_data import run_conversations
from vtrim.chat.skips import SkipLog
from vtrim.chat.template import TemplateRefusal
from vtrim.chat.turns import check_unicode
from vtrim.errors import InputError

Ids = Sequence[int]

_ACCEPTED = (
    "a prompt is the text of `prompt`, `question` or `instruction`, the first of `turns`, or a "
    "conversation in `messages`"
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids that a reply is to follow, and where they came from.

    max_new_tokens: of the reply, None for the settings' own; stop: texts that end it, beside the
    settings' own.
    """

    ids: tuple[int, ...]
    origin: Origin
    max_new_tokens: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PromptSource:
    """Turns rows into at most ``limit`` prompts that leave room in ``context_length`` positions.

    Rows that give none are noted in ``skipped``.
    """

    renderer: Renderer
    context_length: int
    limit: int
    skipped: SkipLog = field(default_factory=SkipLog)

    def from_file(self, path: Path) -> list[Prompt]:
        """Prompts of a file, in its order.

        A row is a conversation, a raw text under ``prompt`` that is encoded as it is, or a user's
        text under ``question`` or ``instruction`` or first in ``turns``.

        Raises:
            InputError: the file cannot be read, or no row is usable.
        """
        rows = read_rows(path, skipped=self.skipped)
        prompts = ((origin, self._row_ids(row, origin)) for origin, row in rows)
        try:
            return self.first_usable(prompts, str(path))
        except InputError as error:  # eval leaves no bad rows out
            raise InputError(str(error).replace(LEAVE_OUT, "")) from error

    def heldout(self, run: Run) -> list[Prompt]:
        """Distinct prompts of held-out conversations, ordered by a hash of their content.

        Raises:
            InputError: a data file is gone, or no held-out conversation is usable.
            MismatchError: a data file has changed since it was counted.
        """
        counted = SkipLog()  # coverage has reported these rows already
        held = [c for c in run_conversations(run, counted) if is_heldout(c)]
        held.sort(key=_content_hash)
        rows = ((c.origin, self._conversation_ids(c)) for c in held)
        where = f"the held-out conversations of {run.manifest}"
        return self.first_usable(_distinct(rows), where)

    def _row_ids(self, row: Any, origin: Origin) -> Ids | RowError:
        """The ids of a row's prompt, or why it has none."""
        text = row.get("prompt") if isinstance(row, Mapping) else None
        try:
            if isinstance(text, str):
                check_unicode(text)
                return self.renderer.encode_text(text) if text.strip() else []
            conversation = asked_in(row, origin)
            check_text(conversation)
            return self._conversation_ids(conversation)
        except RowError as error:
            return error

    def _conversation_ids(self, conversation: Conversation) -> Ids | RowError:
        """What stands before the last reply, with the generation prompt."""
        if conversation.recorded is not None and not conversation.messages:
            return _before_last_run(conversation.recorded.ids, conversation.recorded.mask)
        if conversation.text is not None:
            return self._text_ids(conversation.text)
        messages = before_last_reply(conversation.messages)
        if not messages:
            return []
        try:
            return self.renderer.prompt_ids(messages, conversation.tools)
        except TemplateRefusal as error:
            return RowError("template refusal", str(error))

    def _text_ids(self, text: str) -> Ids | RowError:
        """What stands before the last reply of a text that is already rendered."""
        try:
            return self.renderer.text_prompt_ids(text)
        except RowError as error:
            return error

    def first_usable(
        self, rows: Iterable[tuple[Origin, Ids | RowError]], where: str
    ) -> list[Prompt]:
        """The first prompts that can be answered, at most ``limit``; where: named in the error.

        Raises:
            InputError: there are none.
        """
        prompts: list[Prompt] = []
        for origin, ids in rows:
            kept = self.usable(origin, ids)
            if kept is not None:
                prompts.append(Prompt(kept, origin))
                if len(prompts) == self.limit:
                    break
        if not prompts:
            reasons = "; ".join(self.skipped.lines()) or "there are none"
            raise InputError(f"{where}: no prompt can be answered ({reasons}).")
        return prompts

    def usable(self, origin: Origin, ids: Ids | RowError) -> tuple[int, ...] | None:
        """The ids, where they leave room for a reply; else None, and they are noted as skipped."""
        if isinstance(ids, RowError):
            self.skipped.add(ids.reason, origin, ids.detail)
        elif not ids:
            self.skipped.add("empty prompt", origin)
        elif len(ids) >= self.context_length:
            detail = f"{len(ids)} tokens for {self.context_length} positions, reply included"
            self.skipped.add("prompt longer than the context", origin, detail)
        else:
            return tuple(ids)
        return None


def batches(prompts: Sequence[Prompt], batch_size: int) -> Iterator[tuple[int, Sequence[Prompt]]]:
    """Neighbours with the same limits, at most ``batch_size``, and the first one's index."""
    start = 0
    for _, alike in groupby(prompts, key=lambda prompt: (prompt.max_new_tokens, prompt.stop)):
        run = list(alike)
        for first in range(0, len(run), batch_size):
            batch = run[first : first + batch_size]
            yield start, batch
            start += len(batch)


def asked_in(row: Any, origin: Origin) -> Conversation:
    """The conversation in a row, else the user's text alone that asks for a reply.

    Raises:
        RowError: there is neither; says what rows are read.
    """
    try:
        return conversation_of(row, origin)
    except RowError as error:
        if error.reason != "no messages" or not isinstance(row, dict):
            raise
        text = _question(row)
        if text is not None:
            turn = {"role": "user", "content": text}
            return conversation_of({"messages": [turn], "tools": row.get("tools")}, origin)
        if "--map" not in error.detail:  # an option of coverage
            raise
        raise RowError(error.reason, f"columns {listed(row)}: {_ACCEPTED}") from error


def _question(row: Mapping[str, Any]) -> str | None:
    """The text under ``question``, the first of ``turns``, or the ``instruction`` (and input)."""
    turns = row.get("turns")
    first = turns[0] if isinstance(turns, list) and turns else None
    asked = "\n\n".join(
        text
        for text in (row.get("instruction"), row.get("input"))
        if isinstance(text, str) and text
    )
    texts = (row.get("question"), first, asked if "instruction" in row else None)
    return next((text for text in texts if isinstance(text, str)), None)


def before_last_reply(messages: Sequence[Message]) -> Sequence[Message]:
    """The turns before the reply that ends a conversation; all of them if none ends it."""
    if messages and messages[-1]["role"] == "assistant":
        return messages[:-1]
    return messages


def _before_last_run(ids: Any, mask: Any) -> list[int]:
    """The ids before the last run of reply tokens. ids: [T]; mask: [T] True on reply tokens."""
    end = int(mask.nonzero()[0].max(initial=-1)) + 1
    start = int((~mask[:end]).nonzero()[0].max(initial=-1)) + 1
    return [int(token) for token in ids[:start]]


def _distinct(
    rows: Iterable[tuple[Origin, Ids | RowError]],
) -> Iterator[tuple[Origin, Ids | RowError]]:
    """The rows whose prompt is not that of an earlier row: one text is measured once."""
    seen: set[tuple[int, ...]] = set()
    for origin, ids in rows:
        if not isinstance(ids, RowError):
            if tuple(ids) in seen:
                continue
            seen.add(tuple(ids))
        yield origin, ids


def _content_hash(conversation: Conversation) -> bytes:
    """An order that depends on the content only, and not on the hash that split it off."""
    content: Any = [[m["role"], m["content"]] for m in conversation.messages]
    if not content and conversation.recorded is not None:
        content = conversation.recorded.ids.tolist()
    if not content and conversation.text is not None:
        content = conversation.text
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).digest()
