from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from vtrim.chat.conversation import Conversation
from vtrim.chat.json_array import ArrayError, array_elements
from vtrim.chat.read import ReadOptions, read_conversations
from vtrim.chat.skips import SkipLog
from vtrim.errors import InputError

ROWS = [
    {
        "messages": [
            {"role": "user", "content": f"q{n}"},
            {"role": "assistant", "content": "a\u2028b"},
        ]
    }
    for n in range(3)
]


def read(path: Path, **options: bool) -> tuple[list[Conversation], SkipLog]:
    skipped = SkipLog()
    given = ReadOptions(**options)
    return list(read_conversations([path], options=given, skipped=skipped)), skipped


def as_jsonl(rows: list[dict[str, object]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plain.jsonl", as_jsonl(ROWS)),
        ("no_last_newline.jsonl", as_jsonl(ROWS).rstrip(b"\n")),
        ("bom_crlf_blank.jsonl", b"\xef\xbb\xbf" + as_jsonl(ROWS).replace(b"\n", b"\r\n\r\n \r\n")),
        ("array.jsonl", b" \n" + json.dumps(ROWS).encode()),
        ("pretty.json", b"\xef\xbb\xbf" + json.dumps(ROWS, indent=2).encode() + b"\n\n"),
        ("packed.txt", gzip.compress(as_jsonl(ROWS), mtime=0)),
        (
            "members.gz",
            gzip.compress(as_jsonl(ROWS[:1]), mtime=0) + gzip.compress(as_jsonl(ROWS[1:]), mtime=0),
        ),
        ("array.json.gz", gzip.compress(json.dumps(ROWS).encode(), mtime=0)),
    ],
)
def test_the_same_rows_come_out_of_every_container(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    conversations, skipped = read(path)
    assert [c.messages for c in conversations] == [tuple(row["messages"]) for row in ROWS]
    assert skipped.total == 0


def test_a_row_knows_its_line(tmp_path: Path) -> None:
    path = tmp_path / "gaps.jsonl"
    path.write_bytes(b"\n\n" + as_jsonl(ROWS[:1]) + b"\n" + as_jsonl(ROWS[1:2]))
    assert [str(c.origin) for c in read(path)[0]] == [f"{path}:3", f"{path}:5"]


def test_an_element_of_an_array_knows_its_line(tmp_path: Path) -> None:
    path = tmp_path / "pretty.json"
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in ROWS) + "\n]\n")
    assert [c.origin.line for c in read(path)[0]] == [2, 3, 4]


@pytest.mark.parametrize("content", [b"", b"\n \r\n", b"[]", gzip.compress(b"", mtime=0)])
def test_a_file_without_rows_stops_the_run(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"empty\.jsonl: no rows"):
        read(path)


def test_a_missing_file_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize(
    ("broken", "line"),
    [
        (as_jsonl(ROWS[:2]) + b'{"messages": [{"role": "us', 3),
        (as_jsonl(ROWS[:1]) + b'{"messages": "\xff"}\n' + as_jsonl(ROWS[1:2]), 2),
        (as_jsonl(ROWS).replace(b"}\n", b"},\n"), 1),
        (b"[" + as_jsonl(ROWS[:2]).replace(b"}\n", b"},\n"), 3),
        (b"[1] trailing", 1),
    ],
)
def test_a_cut_or_undecodable_row_stops_the_run_and_names_its_line(
    tmp_path: Path, broken: bytes, line: int
) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_bytes(broken)
    with pytest.raises(InputError, match=rf"broken\.jsonl:{line}: .*--skip-bad-rows"):
        read(path)


def test_bad_rows_are_counted_when_they_are_to_be_skipped(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl"
    path.write_bytes(as_jsonl(ROWS[:2]) + b'{"messages": [{"role": "us')
    conversations, skipped = read(path, skip_bad_rows=True)
    assert len(conversations) == 2
    assert skipped.counts == {"bad JSON": 1}
    assert "cut.jsonl:3" in skipped.lines()[0]


def test_a_cut_gzip_stream_is_a_bad_row_after_the_rows_that_could_be_read(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl.gz"
    many = as_jsonl([{"messages": [{"role": "user", "content": str(n) * 50}]} for n in range(4000)])
    path.write_bytes(gzip.compress(many, mtime=0)[:-2000])
    conversations, skipped = read(path, skip_bad_rows=True)
    assert 0 < len(conversations) < 4000
    assert skipped.counts == {"bad JSON": 1}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": [{"role": "narrator", "content": "x"}]}, "unknown role"),
        ({"messages": [{"content": "x"}]}, "unknown role"),
        ({"messages": [{"role": "user", "content": 7}]}, "unreadable content"),
        ({"messages": [{"role": "user", "content": [3]}]}, "unreadable content"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "unreadable content"),
        ({"messages": "hello"}, "no messages"),
        ({"messages": ["hello"]}, "no messages"),
        ({"title": "hello"}, "no messages"),
        ({"text": "\ud800"}, "unreadable content"),
        ({"messages": [], "source": "\ud800"}, "unreadable content"),
        ({"messages": [], "tools": [{"name": "\ud800"}]}, "unreadable content"),
        ({"messages": [{"role": "user", "content": "", "name": "\ud800"}]}, "unreadable content"),
        ([1, 2], "no messages"),
        (None, "no messages"),
        ({"messages": [], "tools": "{"}, "unreadable tools"),
        ({"input_ids": [1, 2], "loss_mask": [1]}, "bad recorded ids"),
        ({"input_ids": ["a"], "loss_mask": [1]}, "bad recorded ids"),
        ({"input_ids": [-1], "loss_mask": [1]}, "bad recorded ids"),
    ],
)
def test_a_row_that_cannot_be_used_is_counted_under_its_reason(
    write_rows: Callable[..., Path], row: object, reason: str
) -> None:
    conversations, skipped = read(write_rows([ROWS[0], row]))
    assert len(conversations) == 1
    assert skipped.counts == {reason: 1}
    assert "rows.jsonl:2" in skipped.lines()[0]


def test_only_the_first_places_of_a_reason_are_listed(write_rows: Callable[..., Path]) -> None:
    path = write_rows([ROWS[0], *[{"messages": [{"role": "?", "content": ""}]}] * 5])
    (line,) = read(path)[1].lines()
    assert line.startswith("unknown role: 5 (")
    assert line.count("rows.jsonl") == 3
    assert line.endswith("; ...)")


def test_the_reader_reports_every_byte_of_the_files(tmp_path: Path) -> None:
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"]
    paths[0].write_bytes(as_jsonl(ROWS * 300))
    paths[1].write_bytes(gzip.compress(as_jsonl(ROWS * 300), mtime=0))
    told: list[int] = []
    for _ in read_conversations(paths, skipped=SkipLog(), advance=told.append):
        pass
    assert sum(told) == sum(path.stat().st_size for path in paths)
    assert len(told) > 2


def test_array_elements_larger_than_a_chunk_are_whole() -> None:
    values = ["x" * 3_000_000, 17, {"a": [1, "]"]}]
    text = json.dumps(values)[1:].encode()
    assert [value for _, value in array_elements(b"", io.BytesIO(text), 1)] == values


@pytest.mark.parametrize("text", [b"1, 2", b"1 2]", b"1,]", b"1]]", b'"\xff"]', b"tru]"])
def test_an_array_that_is_not_whole_is_refused(text: bytes) -> None:
    with pytest.raises(ArrayError):
        list(array_elements(b"", io.BytesIO(text), 1))


@pytest.mark.parametrize(
    ("name", "rows", "with_stop"),
    [
        ("g01_bom_crlf_blank.jsonl", 3, 11),
        ("g01_array.json", 3, 11),
        ("g01_array_named.jsonl", 3, 11),
        ("g02_plain.jsonl.gz", 3, 11),
        ("g02_two_members.jsonl.gz", 6, 22),
    ],
)
def test_shared_files_in_odd_containers_have_their_known_counts(
    inputs: Path, toy: Callable, tally: Callable, name: str, rows: int, with_stop: int
) -> None:
    found = tally(inputs / name, toy("tok_words"))
    assert (found.feed.rows_used, found.total) == (rows, with_stop)
    assert found.total - found.tokens["<|done|>"] == {11: 8, 22: 16}[with_stop]


def test_the_shared_cut_file_gives_two_rows_when_bad_rows_are_skipped(
    inputs: Path, toy: Callable, tally: Callable
) -> None:
    path = inputs / "g02_cut_last.jsonl"
    with pytest.raises(InputError, match=r"g02_cut_last\.jsonl:3"):
        tally(path, toy("tok_words"))
    found = tally(path, toy("tok_words"), skip_bad_rows=True)
    assert (found.feed.rows_used, found.total, found.tokens["<|done|>"]) == (2, 7, 2)
    assert found.skipped.counts == {"bad JSON": 1}


def test_the_shared_file_with_trailing_commas_names_line_1(inputs: Path) -> None:
    with pytest.raises(InputError, match=r"g02_trailing_comma\.jsonl:1: "):
        read(inputs / "g02_trailing_comma.jsonl")
