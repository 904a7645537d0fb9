"""Data that nobody would write on purpose: it costs a row or one clear line, never a traceback."""

from __future__ import annotations

import datetime
import io
import json
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from vtrim.chat.conversation import Conversation
from vtrim.chat.json_array import ArrayError, array_elements
from vtrim.chat.read import ReadOptions, check_source_column, read_conversations, read_rows
from vtrim.chat.rows import Shard
from vtrim.chat.skips import SkipLog
from vtrim.chat.sources import expand
from vtrim.errors import InputError, OptionError

USER = {"role": "user", "content": "q"}
REPLY = {"role": "assistant", "content": "a"}
GOOD = {"messages": [USER, REPLY]}
LONG = "1" * 5000  # Python refuses to make a number of it


def read(path: Path, **options: Any) -> tuple[list[Conversation], SkipLog]:
    skipped = SkipLog()
    rows = read_conversations([path], options=ReadOptions(**options), skipped=skipped)
    return list(rows), skipped


@pytest.fixture
def jsonl(tmp_path: Path) -> Callable[..., Path]:
    """jsonl(*rows) -> a file of them; a text is a line as it is."""

    def write(*rows: Any) -> Path:
        path = tmp_path / "rows.jsonl"
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return write


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Path]:
    """table(rows) -> a parquet file."""

    def write(rows: list[dict[str, Any]]) -> Path:
        path = tmp_path / "rows.parquet"
        parquet.write_table(pa.Table.from_pylist(rows), path)
        return path

    return write


def called(value: Any) -> dict[str, Any]:
    """A row with a call."""
    call = {"function": {"name": "f", "arguments": {"x": value}}}
    return {"messages": [USER, {**REPLY, "tool_calls": [call]}]}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime.date(2020, 1, 2), "2020-01-02"),
        (datetime.datetime(2020, 1, 2, 3), "2020-01-02 03:00:00"),
        (Decimal("1.50"), "1.50"),
    ],
)
def test_dates_and_decimals_in_calls_and_tools_are_text(
    value: Any, text: str, table: Callable[..., Path]
) -> None:
    (talk,), _ = read(table([{**called(value), "tools": [{"name": "f", "default": value}]}]))
    (call,) = talk.messages[1]["tool_calls"]
    assert call["function"]["arguments"] == {"x": text}
    assert talk.tools == ({"name": "f", "default": text},)


def test_bytes_in_a_call_cost_that_row_and_in_another_column_nothing(
    table: Callable[..., Path],
) -> None:
    with pytest.raises(InputError, match=r"unreadable content 1, .*bytes"):
        read(table([called(b"x")]))
    assert len(read(table([{**called("x"), "image": b"x"}]))[0]) == 1


def test_a_year_beyond_those_of_python_costs_its_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    years = pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())
    parquet.write_table(pa.table({"text": ["one", "two"], "source": years}), path)
    assert [c.text for c in read(path, skip_bad_rows=True)[0]] == ["one"]


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [USER, {**REPLY, "tool_calls": f"[{LONG}]"}]},
        {**GOOD, "tools": f"[{LONG}]"},
        {**GOOD, "tools": [f"[{LONG}]"]},
        {"messages": f"[{LONG}]"},
    ],
)
def test_a_number_of_thousands_of_digits_in_a_json_text_costs_its_row(
    row: Any, jsonl: Callable[..., Path]
) -> None:
    talks, skipped = read(jsonl(GOOD, row))
    assert (len(talks), skipped.total) == (1, 1)


def test_such_a_number_in_an_array_ends_the_array_in_one_line(jsonl: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r"rows\.jsonl:1: .*in a JSON array: .*4300 digits"):
        read(jsonl(f'[{{"x": {LONG}}}]'))


def test_nothing_is_read_ahead_for_an_element_that_no_text_can_mend() -> None:
    stream = io.BytesIO(b'[{"a": tru}' + b" " * (5 << 20) + b"]")
    stream.read(1)
    with pytest.raises(ArrayError, match="Expecting value"):
        list(array_elements(b"", stream, 1))
    assert stream.tell() < 3 << 20


@pytest.mark.parametrize("cut", range(1, 40))
def test_an_element_may_be_cut_by_a_chunk_anywhere(cut: int) -> None:
    text = rb'{"a\ud83d\ude00": [-Infinity, true, "x\\", 1e-5, null]}]'
    (found,) = array_elements(text[:cut], io.BytesIO(text[cut:]), 1)
    assert found == (1, json.loads(text[:-1]))


def test_rows_that_are_lists_of_turns_are_told_how_to_be_wrapped(
    jsonl: Callable[..., Path],
) -> None:
    turns = json.dumps([USER, REPLY])
    for text in (f"{turns}\n{turns}", f"[{turns}, {turns}]", turns):
        with pytest.raises(InputError, match=r'wrapped as \{"messages": \[\.\.\.\]\}'):
            read(jsonl(text))


DAMAGED = """
import sys
from vtrim.chat.read import ReadOptions, read_rows
from vtrim.chat.skips import SkipLog
skipped = SkipLog()
rows = read_rows(sys.argv[1], options=ReadOptions(skip_bad_rows=True), skipped=skipped)
print(sum(1 for _ in rows), skipped.total)
"""


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The Arrow file of a saved data set of 25 rows."""
    import datasets

    datasets.disable_progress_bars()
    rows = [{"messages": [USER, {**REPLY, "content": f"answer {n}"}]} for n in range(25)]
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "saved")
    return next((tmp_path / "saved").glob("*.arrow"))


def test_damaged_offsets_of_a_saved_data_set_are_a_bad_row_and_no_crash(saved: Path) -> None:
    content = saved.read_bytes()
    offsets = b"".join((2 * n).to_bytes(4, "little") for n in range(1, 26))
    place = content.index(offsets) + 40
    saved.write_bytes(content[:place] + b"\xff\xff\xff\x7f" + content[place + 4 :])
    ended = subprocess.run(
        [sys.executable, "-c", DAMAGED, str(saved.parent)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout.split()) == (0, ["0", "1"]), ended.stderr
    with pytest.raises(InputError, match=r":1: .*the table is cut or damaged"):
        list(read_rows(saved.parent, skipped=SkipLog()))


def test_a_text_of_a_saved_data_set_that_is_not_utf8_costs_one_row(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes().replace(b"answer 7", b"answer \xff"))
    talks, skipped = read(saved.parent, skip_bad_rows=True)
    assert (len(talks), skipped.counts) == (24, {"bad JSON": 1})


def test_a_parquet_file_whose_column_names_are_damaged_is_refused(
    table: Callable[..., Path],
) -> None:
    path = table([{"text": "one", "columnname": "x"}])
    path.write_bytes(path.read_bytes().replace(b"columnname", b"\xff\xfelumnname"))
    with pytest.raises(InputError, match=r"rows\.parquet: not a whole parquet file"):
        read(path)


def test_a_mapped_column_may_be_null_or_absent_in_the_first_rows(
    table: Callable[..., Path], jsonl: Callable[..., Path]
) -> None:
    columns = {"user": "q", "assistant": "a", "system": "s"}
    rows = [{"q": "x", "a": "y", "s": None}] * 2 + [{"q": "x", "a": "y", "s": "z"}]
    absent = [{"q": "x", "a": "y"}] * 2 + rows
    for path in (table(rows), jsonl(*absent)):
        assert [len(c.messages) for c in read(path, columns=columns)[0]][-1] == 3
        with pytest.raises(InputError, match=r"no column 'b' for --map assistant=b; .*q, a, s"):
            read(path, columns={"user": "q", "assistant": "b"})


def test_a_source_column_that_no_source_has_is_named_with_those_there_are(
    jsonl: Callable[..., Path], table: Callable[..., Path]
) -> None:
    sources = expand([str(jsonl({**GOOD, "meta": {"set": "x"}})), str(table([{"text": "t"}]))])
    check_source_column(sources, "source")
    check_source_column(sources, "meta.set")
    with pytest.raises(InputError, match=r"^--source-column sett: .*are messages, meta, text\.$"):
        check_source_column(sources, "sett")


def test_the_source_column_may_reach_into_a_row(jsonl: Callable[..., Path]) -> None:
    path = jsonl({**GOOD, "meta": {"set": "x"}}, GOOD)
    talks, _ = read(path, source_column="meta.set")
    assert [talk.source for talk in talks] == ["x", None]


def test_texts_of_the_data_cannot_move_the_cursor_or_fill_the_screen(
    jsonl: Callable[..., Path],
) -> None:
    rows = [
        {"messages": [{"role": "\x1b[2J" + "r" * 5000, "content": "x"}]},
        {"\x1b[31mname\n" + "n" * 5000: 1},
    ]
    _, skipped = read(jsonl(GOOD, *rows))
    for line in skipped.lines():
        assert "\x1b" not in line
        assert "\n" not in line
        assert len(line) < 500
    assert "role '\u241b[2Jrrr" in " ".join(skipped.lines())


def test_the_number_of_shards_is_bounded() -> None:
    assert Shard.parse("1/1000000") == Shard(0, 1_000_000)
    for text in ("1/1000001", "1/99999999999999999999", f"1/{LONG}", f"{LONG}/{LONG}"):
        with pytest.raises(OptionError, match="--shard"):
            Shard.parse(text)
