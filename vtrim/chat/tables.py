"""Rows of parquet files and of Arrow files that ``datasets`` saved, a few at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vtrim.chat.forms import BESIDE, LEADING
from vtrim.chat.rows import ELSEWHERE, Bad, Opened, Row, Shard
from vtrim.chat.streams import open_file
from vtrim.chat.turns import without_nulls
from vtrim.chat.visible import one_line
from vtrim.errors import InputError

_ROWS = 64  # converted to Python objects at a time
_BUFFER = 1 << 16  # [bytes] of a column read ahead; else a whole row group is held


@contextmanager
def open_parquet(path: Path, shard: Shard, more_columns: Sequence[str] | None) -> Iterator[Opened]:
    """The rows of a parquet file; of a table with chat columns, only those that matter.

    more_columns: columns to be read besides; None for all.

    Raises:
        InputError: it is missing, cut or damaged.
    """
    import pyarrow as pa
    from pyarrow import parquet

    pa.set_memory_pool(pa.system_memory_pool())  # the default one keeps what was freed
    with open_file(path) as raw:
        try:
            file = parquet.ParquetFile(
                raw, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True
            )
            names = file.schema_arrow.names
        except (pa.ArrowException, OSError, ValueError) as error:  # a name may be no UTF-8
            raise InputError(f"{path}: not a whole parquet file ({_line(error)}).") from error
        batches = file.iter_batches(_ROWS, columns=_wanted(names, more_columns), use_threads=False)
        size, total = path.stat().st_size, max(file.metadata.num_rows, 1)
        progress = _Progress(size / total)
        yield Opened(_rows(batches, shard, progress), progress.position, names)


@contextmanager
def open_arrow(
    paths: Sequence[Path], shard: Shard, more_columns: Sequence[str] | None
) -> Iterator[Opened]:
    """The rows of Arrow stream files, one after the other; columns as in ``open_parquet``.

    Raises:
        InputError: one is missing, cut or damaged.
    """
    progress = _Progress(0)
    batches = _arrow_batches(paths, progress, more_columns)
    names = _arrow_names(paths[0]) if paths else ()
    yield Opened(_rows(batches, shard, progress), progress.position, names)


class _Progress:
    """Bytes read so far: of whole files, plus an even share for each row."""

    def __init__(self, bytes_per_row: float) -> None:
        self.bytes_per_row = bytes_per_row
        self.rows = 0
        self.done = 0

    def position(self) -> int:
        return self.done + int(self.rows * self.bytes_per_row)


def _arrow_batches(
    paths: Iterable[Path], progress: _Progress, more_columns: Sequence[str] | None
) -> Iterator[Any]:
    for path in paths:
        before = progress.done
        with open_file(path) as raw:
            reader, columns = _arrow_reader(path, raw)
            names = _wanted(columns, more_columns) or columns
            for whole in reader:
                batch = whole.select(names)
                _check(batch)
                for start in range(0, batch.num_rows, _ROWS):
                    yield batch.slice(start, _ROWS)
                progress.done = before + raw.tell()
        progress.done = before + path.stat().st_size


def _arrow_reader(path: Path, raw: Any) -> tuple[Any, list[str]]:
    """The record batches of a file, and its columns."""
    import pyarrow as pa

    try:
        reader = pa.ipc.open_stream(raw)
        return reader, reader.schema.names
    except (pa.ArrowException, OSError, ValueError) as error:  # a name may be no UTF-8
        raise InputError(f"{path}: not a whole Arrow file ({_line(error)}).") from error


def _check(batch: Any) -> None:
    """Refuses offsets and lengths that lead out of a batch: used unchecked, they end the process.

    UTF-8 is not checked here, so that one bad text costs one row.

    Raises:
        pyarrow.ArrowInvalid: they do.
    """
    for column in batch.columns:
        column.view(_as_binary(column.type)).validate(full=True)


def _as_binary(kind: Any) -> Any:
    """The type with bytes in place of texts."""
    import pyarrow as pa

    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_binary(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_binary(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_as_binary(kind.value_type)))
    return kind


def _arrow_names(path: Path) -> list[str]:
    """The columns of a saved data set."""
    with open_file(path) as raw:
        return _arrow_reader(path, raw)[1]


def _rows(batches: Iterable[Any], shard: Shard, progress: _Progress) -> Iterator[Row]:
    """The rows of record batches, without the nulls that Arrow fills objects up with."""
    import pyarrow as pa

    number = 0
    try:
        for batch in batches:
            first = (shard.index - number) % shard.count
            own = range(first, batch.num_rows, shard.count)
            part = batch if shard.count == 1 else batch.take(pa.array(own, pa.int64()))
            values = dict(zip(own, _values(part), strict=True))
            for i in range(batch.num_rows):
                yield number + i + 1, values.get(i, ELSEWHERE)
            number += batch.num_rows
            progress.rows = number
    except (pa.ArrowException, OSError, ValueError) as error:
        bad = Bad(f"the table is cut or damaged: {_line(error)}; nothing after it can be read")
        yield number + 1, bad if shard.owns(number) else ELSEWHERE


def _values(batch: Any) -> list[Any]:
    try:
        return [without_nulls(row) for row in batch.to_pylist()]
    except (ValueError, OverflowError) as error:  # a text that is not UTF-8, a year beyond 9999
        if batch.num_rows == 1:
            why = "a text is not UTF-8" if isinstance(error, UnicodeDecodeError) else _line(error)
            return [Bad(why)]
        return [value for i in range(batch.num_rows) for value in _values(batch.slice(i, 1))]


def _wanted(names: Sequence[str], more_columns: Sequence[str] | None) -> list[str] | None:
    """The columns to read; None for all, where none of them tells the form of a row."""
    if more_columns is None or not set(names) & {*LEADING, "input_ids"}:
        return None
    return [name for name in names if name in {*LEADING, *BESIDE, *more_columns}]


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return one_line(lines[0]) if lines else type(error).__name__
