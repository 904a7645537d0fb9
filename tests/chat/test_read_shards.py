"""Shards: every row is in exactly one of them, and a shard parses no others."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vtrim.chat.conversation import Conversation
from vtrim.chat.json_rows import json_rows
from vtrim.chat.read import ReadOptions, Shard, read_conversations
from vtrim.chat.rows import ELSEWHERE
from vtrim.chat.skips import SkipLog
from vtrim.chat.streams import open_file
from vtrim.errors import InputError, OptionError

GOOD = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}
NARRATED = {"messages": [{"role": "narrator", "content": "x"}]}
PARTS = [
    json.dumps(GOOD).encode() + b"\n",
    json.dumps(NARRATED).encode() + b"\r\n",
    b"\n",
    b"  \n",
    b'{"messages": [\n',
    b"\xff\xfe\n",
]
TREE = {
    "prompt": {
        "role": "prompter",
        "text": "q",
        "replies": [{"role": "assistant", "text": text, "replies": []} for text in "ab"],
    }
}


def places(rows: list[Conversation]) -> list[str]:
    return [str(row.origin) for row in rows]


def read(paths: list[Path], shard: Shard | None) -> tuple[list[Conversation], SkipLog]:
    skipped = SkipLog()
    options = ReadOptions(skip_bad_rows=True, shard=shard)
    return list(read_conversations(paths, options=options, skipped=skipped)), skipped


@pytest.mark.parametrize(
    ("text", "shard"), [("1/1", (0, 1)), ("1/4", (0, 4)), ("4/4", (3, 4)), (" 2 / 3 ", (1, 3))]
)
def test_a_shard_is_typed_from_one(text: str, shard: tuple[int, int]) -> None:
    assert Shard.parse(text) == Shard(*shard)
    assert Shard.parse(str(Shard.parse(text))) == Shard(*shard)


@pytest.mark.parametrize("text", ["", "1", "0/4", "5/4", "a/4", "1/0", "1/2/3", "-1/4"])
def test_a_shard_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=f"--shard {text}"):
        Shard.parse(text)


@given(
    st.lists(st.lists(st.sampled_from(PARTS), min_size=1, max_size=12), min_size=1, max_size=2),
    st.integers(1, 5),
    st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_all_shards_together_give_the_rows_and_the_skips_of_one_run(
    tmp_path: Path, files: list[list[bytes]], count: int, packed: bool
) -> None:
    paths = []
    for number, parts in enumerate(files):
        path = tmp_path / f"{number}.jsonl"
        content = json.dumps(GOOD).encode() + b"\n" + b"".join(parts)
        path.write_bytes(gzip.compress(content) if packed else content)
        paths.append(path)
    whole, skips = read(paths, None)
    merged = SkipLog()
    found: list[str] = []
    for index in range(count):
        rows, skipped = read(paths, Shard(index, count))
        found += places(rows)
        merged = merged.merge(skipped)
    assert sorted(found) == sorted(places(whole))
    assert merged.counts == skips.counts
    assert merged.lines() == skips.lines()


@pytest.mark.parametrize("name", ["rows.json", "rows.parquet", "saved"])
def test_shards_of_arrays_and_tables_are_the_rows_of_their_numbers(
    tmp_path: Path, name: str
) -> None:
    import datasets
    import pyarrow as pa
    from pyarrow import parquet

    datasets.disable_progress_bars()
    rows = [{"messages": [{"role": "assistant", "content": str(n)}]} for n in range(150)]
    path = tmp_path / name
    if name == "rows.json":
        path.write_text(json.dumps(rows))
    elif name == "saved":
        datasets.Dataset.from_list(rows).save_to_disk(path, num_shards=4)
    else:
        parquet.write_table(pa.Table.from_pylist(rows), path, row_group_size=40)
    for index in range(7):
        found, _ = read([path], Shard(index, 7))
        assert [int(row.replies[0]) for row in found] == list(range(index, 150, 7))
        if name != "rows.json":
            assert [row.origin.line for row in found] == [n + 1 for n in range(index, 150, 7)]


def test_a_tree_is_one_row_of_one_shard(tmp_path: Path) -> None:
    path = tmp_path / "trees.jsonl"
    path.write_text((json.dumps(TREE) + "\n") * 3)
    assert [len(read([path], Shard(index, 2))[0]) for index in range(2)] == [4, 2]


def test_rows_of_other_shards_are_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"{\n".join(json.dumps(GOOD).encode() + b"\n" for _ in range(3)))
    with open_file(path) as raw:
        rows: list[Any] = [value for _, value in json_rows(raw, Shard(0, 2))]
    assert rows == [GOOD, ELSEWHERE, GOOD, ELSEWHERE, GOOD]
    assert len(list(read_conversations([path], options=ReadOptions(shard=Shard(0, 2)),
                                       skipped=SkipLog()))) == 3  # fmt: skip
    with pytest.raises(InputError, match=r"rows\.jsonl:2"):
        list(read_conversations([path], options=ReadOptions(shard=Shard(1, 2)), skipped=SkipLog()))


def test_a_shard_without_rows_is_no_error_but_a_file_without_rows_is(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(GOOD) + "\n")
    assert read([path], Shard(2, 3))[0] == []
    path.write_text("\n")
    with pytest.raises(InputError, match="no rows"):
        read([path], Shard(2, 3))


def test_the_mapped_columns_are_looked_for_in_the_first_rows_by_every_shard(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"q": "q", "b": "a"}\n' * 300 + '{"q": "q", "a": "a"}\n')
    for index in range(2):
        options = ReadOptions(columns={"user": "q", "assistant": "a"}, shard=Shard(index, 2))
        with pytest.raises(InputError, match=r"rows\.jsonl: no column 'a' .* are q, b\."):
            list(read_conversations([path], options=options, skipped=SkipLog()))


def test_rows_that_cannot_be_used_at_all_stop_a_whole_run_and_not_a_shard(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n' * 3)
    assert read([path], Shard(0, 2))[1].counts == {"no messages": 2}
    with pytest.raises(
        InputError, match=r"^\S*rows\.jsonl: no row can be used \(no messages 3, first \S*:1: col"
    ):
        read([path], None)
