"""What data an artefact was counted on: fingerprints of files and of shards of files.

``sha256:..`` is a whole file, ``sha256:..#2/4`` the second of four shards of its rows; several
are joined by ``+``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from vtrim.errors import MismatchError


def shard_part(fingerprint: str, shard: tuple[int, int] | None) -> str:
    """The part of a file that shard (index from 0, count) holds; the whole file for None."""
    return fingerprint if shard is None else f"{fingerprint}#{shard[0] + 1}/{shard[1]}"


def join_parts(parts: list[str]) -> str:
    """The data fingerprint of parts in any order; all shards of a file are the file."""
    counted = Counter(parts)
    found = Counter(_shard_of(part) for part in counted)
    for (file, count), number in found.items():
        if not count or number != count:
            continue
        shards = [f"{file}#{one}/{count}" for one in range(1, count + 1)]
        copies = counted[shards[0]]
        if copies and all(counted[shard] == copies for shard in shards):
            for shard in shards:
                del counted[shard]
            counted[file] += copies
    return "+".join(sorted(counted.elements()))


def merge_parts(one: str, other: str) -> str:
    """The data fingerprint of two artefacts together.

    Raises:
        MismatchError: a row would be counted twice.
    """
    if not one or not other:
        return one or other
    parts = one.split("+"), other.split("+")
    for part in set(parts[0]):
        file, count = _shard_of(part)
        for there in set(parts[1]):
            other_file, other_count = _shard_of(there)
            if file == other_file and (part == there or count != other_count):
                raise MismatchError(
                    f"both artefacts count rows of the same data ({part} and {there}), so they "
                    "would count twice. Merge each file or shard once, shards of one count only."
                )
    return join_parts([*parts[0], *parts[1]])


def missing_shards(data_fingerprint: str) -> Iterator[str]:
    """Shards that are not there although others of their file are, e.g. ``2/4 of sha256:..``."""
    have = {part for part in data_fingerprint.split("+") if _shard_of(part)[1]}
    files = {_shard_of(part) for part in have}
    for file, count in sorted(files):
        for number in range(1, count + 1):
            if f"{file}#{number}/{count}" not in have:
                yield f"{number}/{count} of {file}"


def _shard_of(part: str) -> tuple[str, int]:
    """The file of a part, and into how many shards it was cut (0 for a whole file)."""
    file, _, shard = part.partition("#")
    return file, int(shard.split("/")[1]) if shard else 0
