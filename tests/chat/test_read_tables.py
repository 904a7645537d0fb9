"""Packed files, parquet and saved data sets give what plain JSONL gives."""

from __future__ import annotations

import gzip
import json
import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from vtrim.chat.conversation import Conversation
from vtrim.chat.read import ReadOptions, read_conversations, read_rows
from vtrim.chat.skips import SkipLog
from vtrim.errors import InputError

ROWS: list[dict[str, Any]] = [
    {
        "messages": [
            {"role": "user", "content": f"q{n}"},
            {"role": "assistant", "content": "a\u2028b" * n},
        ],
        "source": "even" if n % 2 == 0 else "odd",
    }
    for n in range(200)
]
SKIPPABLE = struct.pack("<II", 0x184D2A50, 4) + b"skip"


def jsonl(rows: Sequence[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def zstd(data: bytes) -> bytes:
    """One frame."""
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def table(rows: Sequence[dict[str, Any]], **options: Any) -> bytes:
    """A parquet file."""
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pylist(list(rows)), sink, **options)
    return sink.getvalue().to_pybytes()


def read(path: Path, **options: Any) -> tuple[list[Conversation], SkipLog]:
    skipped = SkipLog()
    given = ReadOptions(**options)
    return list(read_conversations([path], options=given, skipped=skipped)), skipped


@pytest.fixture
def put(tmp_path: Path) -> Callable[[bytes, str], Path]:
    """put(content, name) -> a file."""

    def write(content: bytes, name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("right.jsonl.gz", gzip.compress(jsonl(ROWS))),
        ("wrong.jsonl", gzip.compress(jsonl(ROWS[:80])) + gzip.compress(jsonl(ROWS[80:]))),
        ("plain.jsonl.gz", jsonl(ROWS)),
        ("right.jsonl.zst", zstd(jsonl(ROWS))),
        ("wrong.gz", zstd(jsonl(ROWS[:80])) + zstd(jsonl(ROWS[80:]))),
        ("cut_in_a_row.zst", zstd(jsonl(ROWS)[:999]) + SKIPPABLE + zstd(jsonl(ROWS)[999:])),
        ("parallel.zst", SKIPPABLE + zstd(jsonl(ROWS))),
        ("array.json.zst", zstd(b"\xef\xbb\xbf" + json.dumps(ROWS, indent=1).encode())),
        ("right.parquet", table(ROWS)),
        ("wrong.jsonl.gz", table(ROWS, row_group_size=7, compression="gzip")),
        ("old.parquet", table(ROWS, version="1.0", use_dictionary=False)),
    ],
)
def test_first_bytes_not_the_name_tell_how_a_file_is_packed(
    put: Callable[..., Path], name: str, content: bytes
) -> None:
    conversations, skipped = read(put(content, name))
    assert [list(c.messages) for c in conversations] == [row["messages"] for row in ROWS]
    assert [c.source for c in conversations] == [row["source"] for row in ROWS]
    assert skipped.total == 0


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cut.gz", gzip.compress(jsonl(ROWS))[:-9], "the gzip stream is cut or damaged"),
        ("cut.zst", zstd(jsonl(ROWS))[:-9], "the zstd stream is cut or damaged"),
        ("tail.zst", zstd(jsonl(ROWS)) + b"tail", "the zstd stream is cut or damaged"),
    ],
)
def test_a_damaged_stream_stops_the_run_and_says_at_which_row(
    put: Callable[..., Path], name: str, content: bytes, message: str
) -> None:
    path = put(content, name)
    with pytest.raises(InputError, match=rf"{name}:\d+: .*{message}"):
        read(path)
    conversations, skipped = read(path, skip_bad_rows=True)
    assert 150 < len(conversations) <= 200
    assert skipped.counts == {"bad JSON": 1}


@pytest.mark.parametrize("packed", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_a_flipped_byte_in_a_packed_file_is_told(
    put: Callable[..., Path], packed: Callable[[bytes], bytes]
) -> None:
    content = bytearray(packed(jsonl(ROWS)))
    content[len(content) // 2] ^= 0xFF
    with pytest.raises(InputError, match=r"rows\.jsonl:\d+: not a whole JSON row"):
        read(put(bytes(content)))


def test_a_damaged_array_says_so(put: Callable[..., Path]) -> None:
    packed = zstd(json.dumps(ROWS).encode())
    with pytest.raises(InputError, match=r"in a JSON array: the zstd stream is cut"):
        read(put(packed[:-9], "array.zst"))


@pytest.mark.parametrize("kept", [3, 20, 400, -1, -9, -200])
def test_a_cut_parquet_file_is_refused(put: Callable[..., Path], kept: int) -> None:
    path = put(table(ROWS)[:kept], "rows.parquet")
    with pytest.raises(InputError, match=r"rows\.parquet: not a whole parquet file"):
        read(path)


def test_a_parquet_file_damaged_inside_stops_the_run_or_ends_at_that_row(
    put: Callable[..., Path],
) -> None:
    noise = random.Random(3)
    rows = [{"text": noise.randbytes(400).hex()} for _ in range(200)]
    content = bytearray(table(rows, row_group_size=20, write_page_checksum=True))
    middle = len(content) // 2
    content[middle : middle + 300] = bytes(300)
    path = put(bytes(content), "rows.parquet")
    with pytest.raises(InputError, match=r"rows\.parquet:\d+: .*the table is cut or damaged"):
        read(path)
    conversations, skipped = read(path, skip_bad_rows=True)
    assert 0 < len(conversations) < 200
    assert skipped.counts == {"bad JSON": 1}


def test_an_empty_table_has_no_rows(put: Callable[..., Path]) -> None:
    empty = pa.table({"messages": pa.array([], pa.list_(pa.string()))})
    sink = pa.BufferOutputStream()
    parquet.write_table(empty, sink)
    with pytest.raises(InputError, match="no rows"):
        read(put(sink.getvalue().to_pybytes(), "rows.parquet"))


def test_nulls_that_arrow_fills_in_are_no_keys_of_a_message_or_tool(
    put: Callable[..., Path],
) -> None:
    calls = [
        {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
        {"type": "function", "function": {"name": "g", "arguments": {"y": "s"}}},
    ]
    tools = [{"name": "f", "parameters": {"x": 1}}, {"name": "g", "parameters": {"y": 1}}]
    rows = [
        {
            "messages": [
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "content": "r", "name": "f"},
            ],
            "tools": tools,
            "text": None,
        }
        for call in calls
    ]
    found, _ = read(put(table(rows), "rows.parquet"))
    assert [c.messages[1] for c in found] == [
        {"role": "assistant", "content": "", "tool_calls": [call]} for call in calls
    ]
    assert found[0].messages[0] == {"role": "user", "content": "q"}
    assert found[0].messages[2] == {"role": "tool", "content": "r", "name": "f"}
    assert list(found[0].tools or ()) == tools


def test_a_null_in_json_is_kept_because_somebody_wrote_it(put: Callable[..., Path]) -> None:
    call = {"function": {"name": "f", "arguments": {"x": None}}}
    row = {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}
    assert read(put(jsonl([row])))[0][0].messages[0]["tool_calls"] == [call]


@pytest.mark.parametrize(
    "column",
    [
        {"role": ["user", "assistant"], "content": ["q", "a"]},
        '[{"role": "user", "content": "q"}, {"from": "gpt", "value": "a"}]',
        ['{"role": "user", "content": "q"}', '{"role": "assistant", "content": "a"}'],
    ],
    ids=["one list a key", "JSON text", "JSON text a turn"],
)
def test_turns_come_in_every_form_that_arrow_keeps_them_in(
    put: Callable[..., Path], column: Any
) -> None:
    (found,) = read(put(table([{"messages": column}]), "rows.parquet"))[0]
    assert list(found.messages) == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a"},
    ]


def test_rows_of_mixed_shape_come_back_from_a_saved_data_set(tmp_path: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    calls: list[Any] = [{"x": 1, "z": None}, {"x": "text"}]
    rows = [
        {
            "messages": [
                {"role": "user", "content": "q"},
                {"role": "assistant", "tool_calls": [{"function": {"arguments": call}}]},
            ]
        }
        for call in calls
    ]
    data = datasets.Dataset.from_list(rows, on_mixed_types="use_json")
    data.save_to_disk(tmp_path / "mixed")
    found, _ = read(tmp_path / "mixed")
    read_calls = [c.messages[1]["tool_calls"][0]["function"]["arguments"] for c in found]
    assert read_calls == calls


def test_a_text_that_is_not_utf8_is_a_bad_row_of_its_own(put: Callable[..., Path]) -> None:
    texts = pa.array([b"one", b"\xff\xfe", b"three"], pa.binary()).cast(pa.string(), safe=False)
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table({"text": texts}), sink)
    path = put(sink.getvalue().to_pybytes(), "rows.parquet")
    with pytest.raises(InputError, match=r"rows\.parquet:2: .*not UTF-8"):
        read(path)
    assert [c.text for c in read(path, skip_bad_rows=True)[0]] == ["one", "three"]


def test_columns_that_say_nothing_of_a_conversation_are_not_read(
    put: Callable[..., Path],
) -> None:
    rows = [{**row, "embedding": [0.5] * 9, "domain": 7, "tools": "[]"} for row in ROWS[:3]]
    path = put(table(rows), "rows.parquet")
    (_, row), *_ = read_rows(path, skipped=SkipLog())
    assert sorted(row) == ["messages", "source", "tools"]
    assert [c.source for c in read(path, source_column="domain")[0]] == ["7"] * 3


def test_every_column_is_named_where_a_mapped_one_is_not_there(put: Callable[..., Path]) -> None:
    path = put(table([{"text": "t", "domain": "d", "question": "q"}]), "rows.parquet")
    with pytest.raises(InputError, match=r"rows\.parquet: .*columns are text, domain, question"):
        read(path, columns={"assistant": "answer"})
    assert read(path, columns={"assistant": "question"})[0][0].replies == ["q"]


def test_every_column_is_read_where_none_tells_the_form(put: Callable[..., Path]) -> None:
    path = put(table([{"question": {"text": "q"}, "answer": "a", "source": 1}]), "rows.parquet")
    (found,) = read(path, columns={"user": "question.text", "assistant": "answer"})[0]
    assert [turn["content"] for turn in found.messages] == ["q", "a"]
    with pytest.raises(InputError, match=r"no messages 1, .*columns question, answer, source"):
        read(path)


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.jsonl.zst", "rows.parquet", "saved"])
def test_the_reader_reports_every_byte_of_packed_files_and_tables(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    rows = ROWS * 5
    if name == "saved":
        import datasets

        datasets.disable_progress_bars()
        datasets.Dataset.from_list(rows).save_to_disk(path, num_shards=2)
        size = sum(file.stat().st_size for file in path.glob("*.arrow"))
    else:
        pack = {"gz": gzip.compress, "zst": zstd}.get(name.rpartition(".")[2])
        path.write_bytes(pack(jsonl(rows)) if pack else table(rows))
        size = path.stat().st_size
    told: list[int] = []
    for _ in read_conversations([path], skipped=SkipLog(), advance=told.append):
        pass
    assert sum(told) == size
    assert min(told) >= 0
    assert len(told) > 2
