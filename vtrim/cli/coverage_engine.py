"""Who counts which rows: this process, several, or a Ray cluster; the sum is always the same."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from vtrim.cli import common
from vtrim.cli.coverage_part import Part, PartSpec, Reading, Tell, TokenizerSpec, count_part
from vtrim.cli.coverage_pool import available_cpus, count_in_processes

if TYPE_CHECKING:
    from vtrim.chat.sources import Source
    from vtrim.trimming.coverage import Coverage

ENGINES = ("local", "ray")

# Bytes of JSON that a process should have to count, lest its start (1.5 to 2 s) cost more than it
# gives: at about 3, 12 and 30 MB/s by whole renders, with tokenizers and with gigatoken.
_WHOLE_RENDERS, _TOKENIZERS, _GIGATOKEN = 8 * 2**20, 32 * 2**20, 128 * 2**20
_PACKED = (".gz", ".zst", ".parquet")
_PACKED_RATIO = 4  # bytes of JSON in a byte of a packed file, about


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that is to be counted, and by whom. processes: None leaves the number to the size."""

    tokenizer: Any
    spec: TokenizerSpec
    blank: Coverage
    sources: tuple[Source, ...]
    generated: tuple[Source, ...]
    reading: Reading
    processes: int | None = None
    engine: str = "local"

    @property
    def num_processes(self) -> int:
        """Processes that count."""
        if self.processes is not None:
            return self.processes
        size = sum(_json_bytes(source) for source in (*self.sources, *self.generated))
        shard = self.reading.options.shard
        share = size // (shard.count if shard is not None else 1)
        return max(1, min(available_cpus(), share // _process_bytes(self.reading)))

    def specs(self, parts: int, *, full: bool) -> list[PartSpec]:
        """At least ``parts`` pieces of work, the largest first; for one, a single walk."""
        return [
            PartSpec(
                tokenizer=self.spec,
                blank=self.blank,
                sources=sources,
                reading=self._reading(piece, 0 if parts == 1 else count, generated),
                generated=generated,
                full=full,
            )
            for generated, group in ((False, self.sources), (True, self.generated))
            for sources, count in _groups(group, parts)
            for piece in range(count)
        ]

    def _reading(self, piece: int, count: int, generated: bool) -> Reading:
        """How one of ``count`` pieces of this machine's rows is read; count 0: all of them.

        A piece may be without any usable row, which a reader refuses in data that is not sharded.
        Generated text is in a known form, so --map does not concern it.
        """
        from vtrim.chat.read import Shard

        options = replace(self.reading.options, columns={}) if generated else self.reading.options
        if count:
            outer = options.shard or Shard(0, 1)
            narrowed = Shard(outer.index + outer.count * piece, outer.count * count)
            options = replace(options, shard=narrowed)
        return replace(self.reading, options=options)


def count_all(job: Job) -> Part:
    """The counts of a job; should a fast path differ anywhere, all is counted by a slower one.

    Raises:
        InputError: a source cannot be read, or a process died.
    """
    from vtrim.chat.feed import FastPathDiffers
    from vtrim.chat.gigatoken import NotProved

    full = False
    while True:
        try:
            return _count(job, full=full)
        except NotProved as error:
            if job.reading.encoder != "auto":
                raise
            common.note(f"{error} Counting again with tokenizers.")
            job = _with_tokenizers(job)
        except FastPathDiffers as error:
            if error.encoder == "gigatoken":
                common.note(f"{error}: gigatoken's ids differ; counting again with tokenizers.")
                job = _with_tokenizers(job)
            else:
                common.note(f"{error}: by segments it differs; counting again by full renders.")
                full = True


def _with_tokenizers(job: Job) -> Job:
    return replace(job, reading=replace(job.reading, encoder="tokenizers"))


def _count(job: Job, *, full: bool) -> Part:
    if job.engine == "ray":
        from vtrim.cli.coverage_ray import count_by_ray, start_ray

        specs = job.specs(start_ray(job.processes), full=full)
        with _progress(specs) as tell:
            return _sum(count_by_ray(specs, tell))
    specs = job.specs(job.num_processes, full=full)
    with _progress(specs) as tell:
        if job.num_processes == 1:
            return _sum(count_part(spec, tokenizer=job.tokenizer, tell=tell) for spec in specs)
        return _sum(count_in_processes(specs, job.num_processes, tell))


def _sum(parts: Iterable[Part]) -> Part:
    """All parts together, added as they come."""
    return reduce(Part.merge, parts)


def _groups(sources: Sequence[Source], parts: int) -> list[tuple[tuple[Source, ...], int]]:
    """Sources to be walked together, and into how many pieces their rows are cut."""
    if parts == 1:
        return [(tuple(sources), 1)] if sources else []
    total = sum(_json_bytes(source) for source in sources)
    groups = [((source,), _pieces(source, total, parts)) for source in sources]
    return sorted(groups, key=lambda group: -_json_bytes(group[0][0]) // group[1])


def _pieces(source: Source, total: int, parts: int) -> int:
    """Pieces of one source, by its share of all bytes; all of them where its size is unknown."""
    size = _json_bytes(source)
    return max(1, -(-parts * size // total)) if size else parts


def _process_bytes(reading: Reading) -> int:
    """Bytes of JSON from which a further process pays for its start."""
    if reading.max_length is not None:
        return _WHOLE_RENDERS
    fast = reading.encoder != "tokenizers" and find_spec("gigatoken") is not None
    return _GIGATOKEN if fast else _TOKENIZERS


def _json_bytes(source: Source) -> int:
    """Size of a source as plain JSON [bytes], about."""
    packed = source.name.endswith(_PACKED)
    return source.size * (_PACKED_RATIO if packed else 1)


@contextmanager
def _progress(specs: Sequence[PartSpec]) -> Iterator[Tell]:
    """A bar over the bytes that all parts read; each reads its sources whole."""
    total = sum(source.size for spec in specs for source in spec.sources)
    started, counted = time.monotonic(), 0
    with common.progress("counting", total) as advance:

        def tell(size: int, rows: int) -> None:
            nonlocal counted
            counted += rows
            rate = counted / max(time.monotonic() - started, 1e-9)
            advance(size, f"counting ({rate:,.0f} rows/s)")

        yield tell
