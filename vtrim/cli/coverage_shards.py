"""Shards of one corpus: which rows this process counts, and the sum once all are there."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import Run
from vtrim.cli import common
from vtrim.cli.coverage_merge import check_any_reply, merge
from vtrim.cli.coverage_record import Record, record_of
from vtrim.errors import InputError, OptionError

if TYPE_CHECKING:
    from vtrim.chat.read import Shard
    from vtrim.trimming.coverage import Coverage

# Rank and number of processes, as launchers name them: torchrun and deepspeed, srun, mpirun.
# Not SLURM_NTASKS: sbatch sets it for a script that runs once.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)

# Entries of run.json's data that decide what is counted of a row.
_SETTINGS = ("max_length", "last_turn_only", "skip_bad_rows", "read", "heldout_percent")


def pick_shard(typed: str | None) -> Shard | None:
    """The shard that was typed, else the launcher's; None for all rows.

    Raises:
        OptionError: it is none.
    """
    from vtrim.chat.read import Shard

    if typed is not None:
        shard = Shard.parse(typed)
        return shard if shard.count > 1 else None
    for rank, size in _LAUNCHERS:
        if size in os.environ and (rank in os.environ or rank == "RANK"):
            return _launched(rank, size)
    return None


def _launched(rank: str, size: str) -> Shard | None:
    from vtrim.chat.read import Shard

    number, count = os.environ.get(rank, ""), os.environ[size]
    if count.strip() == "1":
        return None
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
        common.speak_for_itself()  # RANK may be nonsense too
        raise OptionError(
            f"{rank}={number or '(not set)'} and {size}={count}: a launcher sets them to the "
            f"process's number from 0 and the number of processes. Unset {size}, or give --shard "
            "(1/1 counts everything)."
        )
    shard = Shard.parse(f"{int(number) + 1}/{int(count)}")
    common.note(f"shard {shard}, by {rank} and {size} (--shard 1/1 counts everything).")
    return shard


def shard_path(run: Run, shard: Shard) -> Path:
    """Where a shard's counts go: ``coverage.2-of-4.npz``."""
    return run.root / f"coverage.{shard.index + 1}-of-{shard.count}.npz"


def merge_when_complete(
    run: Run, shard: Shard, mine: Coverage, record: Record
) -> tuple[Coverage, Record] | None:
    """The sum of all shards of the same data, if all are there; says what is missing.

    Whoever writes its shard last sees all of them. Should two be last at once, both make the same
    file of the same bytes.

    Raises:
        InputError: all shards together hold no reply.
    """
    found = {shard.index: (shard_path(run, shard), mine)}
    for path in run.root.glob(f"coverage.*-of-{shard.count}.npz"):
        index = _index(path, shard.count)
        if index not in (None, shard.index):
            other = _of_same_data(path, replace(shard, index=index), mine, record)
            if other is not None:
                found[index] = (path, other)
    missing = [str(index + 1) for index in range(shard.count) if index not in found]
    if missing:
        numbers = ", ".join(missing[:8]) + (" ..." if len(missing) > 8 else "")
        common.note(f"shard {shard} counted; not there yet: {numbers} of {shard.count}.")
        return None
    merged, whole = merge([found[index] for index in range(shard.count)], run.coverage)
    check_any_reply(merged, f"any of the {shard.count} shards")
    common.note(f"all {shard.count} shards are there: merged into {run.coverage}")
    return merged, whole


def _index(path: Path, count: int) -> int | None:
    """Which shard (from 0) a file is named for."""
    number = re.fullmatch(rf"coverage\.([1-9]\d*)-of-{count}\.npz", path.name)
    return int(number[1]) - 1 if number else None


def _of_same_data(path: Path, shard: Shard, mine: Coverage, record: Record) -> Coverage | None:
    """The shard in ``path`` if it was counted as mine was; says if it was not."""
    from vtrim.trimming.coverage import Coverage

    try:
        other = Coverage.load(path)
    except InputError as error:
        common.warn(f"{error} It is left out.")
        return None
    known = record_of(path, other)
    if known is None or _identity(other, known, shard) != _identity(mine, record, None):
        common.warn(f"{path}: counts of other data, or with other options; left out.")
        return None
    return other


def _identity(coverage: Coverage, record: Record, shard: Shard | None) -> Any:
    """What shards of one corpus have in common. shard: which one it must be, None for any."""
    parts = [part.partition("#") for part in coverage.data_fingerprint.split("+")]
    is_shard = shard is None or {place for _, _, place in parts} == {str(shard)}
    settings = {key: value for key, value in record.data.items() if key in _SETTINGS}
    generated = [part.partition("#")[0] for part in coverage.generated_fingerprint.split("+")]
    files = sorted(file for file, _, _ in parts)
    return is_shard, files, sorted(generated), coverage.tokenizer_fingerprint, settings
