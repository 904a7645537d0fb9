"""The conversations a run was counted on, read again by training and evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vtrim.artifacts import Run, check_match
from vtrim.chat.conversation import Conversation
from vtrim.chat.read import ReadOptions, read_conversations
from vtrim.chat.skips import SkipLog
from vtrim.chat.sources import Source, readable
from vtrim.errors import InputError


def run_conversations(run: Run, skipped: SkipLog) -> Iterator[Conversation]:
    """The run's conversations, after proving that its data are what coverage counted.

    Raises:
        InputError: a file is gone. MismatchError: its content has changed.
    """
    run.step("coverage")
    data = run.read()["data"]
    if not data["files"]:
        raise InputError(
            f"{run.manifest} names no data files (its counts were merged from artefacts that do "
            "not tell theirs). Run `vtrim coverage` on the data in this run folder."
        )
    sources = []
    for described in data["files"]:
        path = described["path"]
        with readable(path):
            there = described.get("format") == "hub" or Path(path).exists()
        if not there:
            raise InputError(
                f"{path}: no such file, but the run was counted on it ({run.manifest})."
            )
        source = Source.from_description(described)
        check_match(
            f"{path}: content",
            source.fingerprint(),
            described["fingerprint"],
            str(run.manifest),
            "Run `vtrim coverage` again on the changed data.",
        )
        sources.append(source)
    options = ReadOptions.from_dict(data.get("read", data))
    yield from read_conversations(sources, options=options, skipped=skipped)
