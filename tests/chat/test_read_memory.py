"""Memory does not grow with the length of a file."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

READ = """
import sys
from vtrim.chat.read import read_conversations
from vtrim.chat.skips import SkipLog
rows = sum(1 for _ in read_conversations(sys.argv[1:], skipped=SkipLog()))
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(rows, int(peak.split()[1]))
"""


def write_jsonl(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_array(path: Path, rows: list[Any]) -> None:
    path.write_text(json.dumps(rows))


def write_gzip(path: Path, rows: list[Any]) -> None:
    path.write_bytes(gzip.compress(json.dumps(rows).encode(), 1))


def write_zstd(path: Path, rows: list[Any]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(pa.Codec("zstd").compress(text, asbytes=True))


def write_parquet(path: Path, rows: list[Any]) -> None:
    parquet.write_table(pa.Table.from_pylist(rows), path)


def write_saved(path: Path, rows: list[Any]) -> None:
    import datasets

    datasets.disable_progress_bars()
    datasets.Dataset.from_list(rows).save_to_disk(path)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize(
    "write",
    [write_jsonl, write_array, write_gzip, write_zstd, write_parquet, write_saved],
    ids=lambda write: write.__name__,
)
def test_a_file_ten_times_as_long_takes_less_than_5_percent_more_memory(
    tmp_path: Path, write: Callable[[Path, list[Any]], None]
) -> None:
    noise = random.Random(1)
    peaks = []
    first = 6000 if write is write_parquet else 3000  # so long that every buffer has been full
    for number in (first, 10 * first):
        rows = [
            {"messages": [{"role": "assistant", "content": noise.randbytes(350).hex()}]}
            for _ in range(number)
        ]
        path = tmp_path / str(number)
        write(path, rows)
        out = subprocess.run(
            [sys.executable, "-c", READ, str(path)], check=True, capture_output=True, text=True
        ).stdout
        read, peak = map(int, out.split())
        assert read == number
        peaks.append(peak)
    assert peaks[1] < 1.05 * peaks[0]
