"""The conversations a run was counted on, read again by training and evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vtrim.artifacts import Run, check_match, fingerprint_file
from vtrim.chat.conversation import Conversation
from vtrim.chat.read import read_conversations
from vtrim.chat.skips import SkipLog
from vtrim.errors import InputError


def run_conversations(run: Run, skipped: SkipLog) -> Iterator[Conversation]:
    """The run's conversations, after proving that its files are the ones coverage counted.

    Raises:
        InputError: a file is gone. MismatchError: its content has changed.
    """
    run.step("coverage")
    data = run.read()["data"]
    for file in data["files"]:
        path = Path(file["path"])
        if not path.exists():
            raise InputError(
                f"{path}: no such file, but the run was counted on it ({run.manifest})."
            )
        check_match(
            f"{path}: content",
            fingerprint_file(path),
            file["fingerprint"],
            str(run.manifest),
            "Run `vtrim coverage` again on the changed data.",
        )
    paths = [file["path"] for file in data["files"]]
    yield from read_conversations(
        paths, skip_bad_rows=bool(data.get("skip_bad_rows")), skipped=skipped
    )
