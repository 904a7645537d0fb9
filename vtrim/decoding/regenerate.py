"""Replies of the target written to a chat file, resumable row by row.

Finished rows are appended to ``OUT.part``; the file takes its final name, in the order of the
prompts, only when it is whole.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from vtrim.artifacts import atomic_path, check_match, fingerprint_json
from vtrim.chat.conversation import Origin
from vtrim.errors import InputError

if TYPE_CHECKING:
    from vtrim.decoding.batch import BatchDecoder, Reply

NOWHERE = Origin("", 0)
WINDOW_BATCHES = 32  # batches of prompts held in memory and sorted by length at a time


@dataclass(frozen=True)
class Request:
    """One reply to generate: the messages before it, their rendered ids, and what else to keep.

    prompt_ids: none where a server renders the messages. origin: of the row.
    """

    row: int
    messages: list[dict[str, Any]]
    prompt_ids: list[int]
    extras: dict[str, Any] = field(default_factory=dict)
    origin: Origin = NOWHERE

    @property
    def fingerprint(self) -> str:
        """Of the prompt; tells on resume whether the row is still the same."""
        prompt: Any = self.prompt_ids or [self.messages, self.extras.get("tools")]
        return fingerprint_json(prompt)[7:23]


@dataclass
class Totals:
    """What was generated now, and what was found finished."""

    rows: int = 0
    resumed: int = 0
    reply_tokens: int = 0
    stopped: int = 0
    order: list[int] = field(default_factory=list)

    def add(self, tokens: int, finish_reason: str) -> None:
        """Counts one reply."""
        self.rows += 1
        self.reply_tokens += tokens
        self.stopped += finish_reason == "stop"


class PartFile:
    """``OUT.part``: the settings on its first line, then ``row TAB fingerprint TAB json`` lines.

    Raises:
        MismatchError: it was begun with other settings, whose replies must not be mixed in.
        InputError: the file cannot be read or written.
    """

    def __init__(self, output: Path, settings: Mapping[str, Any]) -> None:
        self.path = output.with_name(output.name + ".part")
        self.places: dict[int, tuple[str, int]] = {}
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            self.handle: IO[bytes] = self.path.open("ab+")
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written ({error.strerror}).") from error
        try:
            self._recover(dict(settings))
        except BaseException:
            self.close()
            raise

    def _recover(self, settings: dict[str, Any]) -> None:
        """Finds the finished rows; a line that was cut by a kill is removed."""
        self.handle.seek(0)
        header = self.handle.readline()
        if not header.endswith(b"\n"):
            self.handle.truncate(0)
            self.handle.write(json.dumps(settings).encode() + b"\n")
            self.handle.flush()
            return
        found = json.loads(header)
        for key in {**found, **settings}:
            remedy = f"Use the same settings, or delete {self.path.name} to start again."
            check_match(key, settings.get(key), found.get(key), str(self.path), remedy)
        whole = self.handle.tell()
        for line in self.handle:
            if not line.endswith(b"\n"):
                break
            row, fingerprint, _ = line.split(b"\t", 2)
            self.places[int(row)] = (fingerprint.decode(), whole)
            whole += len(line)
        self.handle.truncate(whole)

    def has(self, request: Request) -> bool:
        """Whether this row is finished, for this very prompt."""
        place = self.places.get(request.row)
        return place is not None and place[0] == request.fingerprint

    def append(self, request: Request, value: Mapping[str, Any]) -> None:
        """Adds a finished row and hands it to the operating system."""
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        line = f"{request.row}\t{request.fingerprint}\t{body}\n".encode()
        try:
            place = self.handle.seek(0, 2)
            self.handle.write(line)
            self.handle.flush()
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be written ({error.strerror}). Finished rows are kept; "
                "free some space and run the same command again."
            ) from error
        self.places[request.row] = (request.fingerprint, place)

    def count_ids(self, rows: Iterable[int]) -> int:
        """How many of the finished ``rows`` have token ids."""
        return sum("input_ids" in json.loads(self.read(row)) for row in rows)

    def read(self, row: int) -> bytes:
        """The JSON line of a finished row."""
        self.handle.seek(self.places[row][1])
        return self.handle.readline().split(b"\t", 2)[2]

    def finish(self, output: Path, rows: Iterable[int]) -> None:
        """Writes ``rows`` under the final name (gzip for .gz) and removes the part file."""
        with atomic_path(output) as temporary, temporary.open("wb") as raw:
            if output.suffix == ".gz":
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
                    packed.writelines(self.read(row) for row in rows)
            else:
                raw.writelines(self.read(row) for row in rows)
        self.close()
        self.path.unlink()

    def close(self) -> None:
        """Ends writing; the part file stays for the next run."""
        self.handle.close()


def regenerate_rows(
    requests: Iterable[Request],
    decoder: BatchDecoder,
    part: PartFile,
    text_of: Callable[[Sequence[int]], str],
    advance: Callable[[int, int], None],
) -> Totals:
    """Generates every row that ``part`` lacks; ``advance(rows, tokens)`` follows each reply.

    text_of: token ids without the stop token -> text of the reply.
    """
    totals, stream = Totals(), iter(requests)
    while window := list(islice(stream, decoder.batch_size * WINDOW_BATCHES)):
        totals.order += [request.row for request in window]
        finished = [request for request in window if part.has(request)]
        totals.resumed += len(finished)
        advance(len(finished), 0)
        missing = {request.row: request for request in window if not part.has(request)}
        for reply in decoder.decode([(row, r.prompt_ids) for row, r in missing.items()]):
            request = missing[reply.row]
            part.append(request, chat_row(request, reply, text_of))
            totals.add(len(reply.ids), reply.finish_reason)
            advance(1, len(reply.ids))
    return totals


def chat_row(
    request: Request, reply: Reply, text_of: Callable[[Sequence[int]], str]
) -> dict[str, Any]:
    """A chat row with the reply's text, the ids as the target produced them, and their mask."""
    spoken = reply.ids[:-1] if reply.finish_reason == "stop" else reply.ids
    message = {"role": "assistant", "content": text_of(spoken)}
    return reply_row(request, message, reply.finish_reason, (request.prompt_ids, reply.ids))


def reply_row(
    request: Request,
    message: dict[str, Any],
    finish_reason: str,
    ids: tuple[list[int], list[int]] | None,
) -> dict[str, Any]:
    """A chat row that ends with ``message``. ids: of prompt and reply, where they are known."""
    row: dict[str, Any] = {"messages": [*request.messages, message], **request.extras}
    if ids is not None:
        prompt, reply = ids
        row["input_ids"] = prompt + reply
        row["loss_mask"] = [0] * len(prompt) + [1] * len(reply)
    row["finish_reason"] = finish_reason
    return row


def before_last_reply(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The prompt of a row: its messages without the assistant turn that ends it, if one does."""
    kept = [dict(message) for message in messages]
    return kept[:-1] if kept and kept[-1]["role"] == "assistant" else kept
