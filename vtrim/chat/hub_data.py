"""Data sets of the Hugging Face Hub, streamed; and what the hub says about them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vtrim.chat.rows import ELSEWHERE, Opened, Row, Shard
from vtrim.chat.turns import without_nulls
from vtrim.errors import InputError

# org/name, or org/name:config
_ID = re.compile(r"(?P<id>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(:(?P<config>[\w.-]+))?")
SAVE = "datasets.load_dataset(...).save_to_disk(DIR)"


def parse_hub_id(name: str) -> tuple[str, str | None] | None:
    """(id, config or None) where a name looks like a data set on the hub, else None."""
    match = _ID.fullmatch(name)
    return (match["id"], match["config"]) if match else None


def hub_revision(hub_id: str) -> str:
    """The commit that the hub's copy stands at now.

    Raises:
        InputError: the hub cannot be reached or knows no such data set.
    """
    import huggingface_hub
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        revision = huggingface_hub.HfApi().dataset_info(hub_id).sha
    except RepositoryNotFoundError as error:
        raise InputError(
            f"{hub_id}: no such file here, and no such data set on the hub (or no access to it)."
        ) from error
    except Exception as error:
        raise InputError(
            f"{hub_id}: no such file here, and the hub cannot be asked for the data set "
            f"({_line(error)}). Offline, name a folder made by {SAVE}."
        ) from error
    return str(revision)


def hub_splits(hub_id: str, config: str | None, revision: str) -> list[str]:
    """The names of the splits; empty where they cannot be told."""
    import datasets

    try:
        return list(datasets.get_dataset_split_names(hub_id, config, revision=revision))
    except Exception:  # noqa: BLE001 - only to name them in an error
        return []


@contextmanager
def open_hub(
    hub_id: str, config: str | None, split: str | None, revision: str | None, shard: Shard
) -> Iterator[Opened]:
    """The rows of one split, streamed.

    Raises:
        InputError: it cannot be loaded; the reason names the splits or configs there are.
    """
    import datasets

    try:
        stream = datasets.load_dataset(
            hub_id, name=config, split=split, revision=revision, streaming=True
        )
    except Exception as error:
        raise InputError(f"{hub_id}: cannot be loaded from the hub ({_line(error)}).") from error
    yield Opened(_rows(hub_id, stream, shard), lambda: 0)


def _rows(hub_id: str, stream: Any, shard: Shard) -> Iterator[Row]:
    rows = iter(stream)
    number = 0
    while True:
        try:
            value = next(rows, ELSEWHERE)
        except Exception as error:
            raise InputError(
                f"{hub_id}: row {number + 1} cannot be read from the hub ({_line(error)}). "
                f"Make a local copy with {SAVE}."
            ) from error
        if value is ELSEWHERE:
            return
        yield number + 1, without_nulls(value) if shard.owns(number) else ELSEWHERE
        number += 1


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
