from __future__ import annotations

import gzip
import hashlib
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from vtrim.artifacts import Run
from vtrim.chat.read import ReadOptions, Shard, read_conversations
from vtrim.chat.run_data import run_conversations
from vtrim.chat.skips import SkipLog
from vtrim.chat.sources import Source, expand, without_repeats
from vtrim.errors import InputError, MismatchError, OptionError

TALKS = [
    {"messages": [{"role": "user", "content": f"q{n}"}, {"role": "assistant", "content": f"a{n}"}]}
    for n in range(7)
]
JSONL = "".join(json.dumps(row) + "\n" for row in TALKS).encode()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a few files of chat."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("b.jsonl", "a.jsonl", "c.txt", "deep/d.jsonl", "deep/er/e.jsonl"):
        (tmp_path / name).write_bytes(JSONL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders that save_to_disk wrote: ``one`` data set in two files, and ``two`` splits."""
    import datasets

    datasets.disable_progress_bars()
    root = tmp_path_factory.mktemp("saved")
    data = datasets.Dataset.from_list(TALKS)
    data.save_to_disk(root / "one", num_shards=2)
    splits = {"train": data, "test": data.select(range(2))}
    datasets.DatasetDict(splits).save_to_disk(root / "two")
    return root


def texts(sources: list[Any], **options: Any) -> list[str]:
    rows = read_conversations(sources, options=ReadOptions(**options), skipped=SkipLog())
    return [row.messages[0]["content"] for row in rows]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["b.jsonl"], ["b.jsonl"]),
        (["b.jsonl", "a.jsonl"], ["b.jsonl", "a.jsonl"]),
        (["*.jsonl"], ["a.jsonl", "b.jsonl"]),
        (["[ab].jsonl", "c.txt"], ["a.jsonl", "b.jsonl", "c.txt"]),
        (["deep/**/*.jsonl"], ["deep/d.jsonl", "deep/er/e.jsonl"]),
        (["?.txt"], ["c.txt"]),
        (["*"], ["a.jsonl", "b.jsonl", "c.txt"]),
    ],
)
@pytest.mark.usefixtures("folder")
def test_names_and_quoted_patterns_stand_for_files_in_a_fixed_order(
    names: list[str], found: list[str]
) -> None:
    sources = expand(names)
    assert [source.name for source in sources] == found
    assert {(source.format, source.size) for source in sources} == {("jsonl", len(JSONL))}


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(folder: Path) -> None:
    (folder / "x[1].jsonl").write_bytes(JSONL)
    assert [source.name for source in expand(["x[1].jsonl"])] == ["x[1].jsonl"]


def test_a_pattern_finds_saved_data_sets_and_passes_other_folders_by(
    folder: Path, saved: Path
) -> None:
    sources = expand([f"{saved}/o*", f"{folder}/*"])
    assert [source.format for source in sources] == ["dataset", "jsonl", "jsonl", "jsonl"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.jsonl", r"^none\.jsonl: no such file\.$"),
        ("deep/none", r"^deep/none: no such file\.$"),
        ("nowhere/none.jsonl", r"^nowhere/none\.jsonl: no such file\.$"),
        ("/nowhere/at/all", "no such file"),
        ("*.parquet", r"^\*\.parquet: matches no file\. Check"),
        ("deep", r"^deep: a folder, and not one that save_to_disk .* e\.g\. 'deep/\*\.jsonl'"),
        ("deep/er/", r"Name its files instead"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_name_that_stands_for_nothing_is_refused_with_a_remedy(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        expand([name])


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"PK\x03\x04zip", "a zip archive.*unpack it first"),
        (b"BZh91AY", "bzip2"),
        (b"\xfd7zXZ\x00", "packed with xz"),
        (b"ARROW1\x00\x00", "Arrow or Feather"),
        (b"\xff\xff\xff\xff\x10", "name the folder that save_to_disk wrote"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    ],
)
def test_a_kind_of_file_that_is_not_read_is_named(
    tmp_path: Path, head: bytes, message: str
) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(head + b"\x00" * 40)
    with pytest.raises(InputError, match=rf"data\.jsonl: .*{message}"):
        expand([str(path)])


def test_a_pipe_is_refused_because_it_can_be_read_only_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        expand([str(tmp_path / "pipe")])


def test_a_file_is_described_by_its_absolute_path_and_content(folder: Path) -> None:
    (source,) = expand(["a.jsonl"])
    described = source.describe()
    assert described == {
        "path": str(folder / "a.jsonl"),
        "bytes": len(JSONL),
        "fingerprint": "sha256:" + hashlib.sha256(JSONL).hexdigest(),
        "format": "jsonl",
        "split": None,
    }
    again = Source.from_description(json.loads(json.dumps(described)))
    assert again.describe() == described
    assert texts([again]) == texts([source])


def test_a_description_without_a_format_is_that_of_an_older_run(folder: Path) -> None:
    source = Source.from_description({"path": str(folder / "a.jsonl"), "bytes": 1})
    assert (source.format, len(texts([source]))) == ("jsonl", 7)


def test_a_saved_data_set_is_fingerprinted_by_all_its_files_in_order(saved: Path) -> None:
    (one,) = expand([str(saved / "one")])
    files = sorted((saved / "one").glob("*.arrow"))
    assert len(files) == 2
    assert one.size == sum(file.stat().st_size for file in files)
    assert one.fingerprint() != expand([str(saved / "two")], split="train")[0].fingerprint()
    assert one.fingerprint() == Source.from_description(one.describe()).fingerprint()


@pytest.mark.parametrize(
    ("name", "split", "label", "rows"),
    [
        ("one", None, "one", 7),
        ("two", "train", "two[train]", 7),
        ("two", "test", "two[test]", 2),
        ("two/test", None, "test", 2),
    ],
)
def test_a_saved_data_set_gives_the_rows_of_its_split(
    saved: Path, name: str, split: str | None, label: str, rows: int
) -> None:
    (source,) = expand([str(saved / name)], split=split)
    assert source.label.endswith(label)
    assert texts([source]) == [f"q{n}" for n in range(rows)]
    again = Source.from_description(json.loads(json.dumps(source.describe())))
    assert texts([again]) == texts([source])
    assert pickle.loads(pickle.dumps(source)) == source  # noqa: S301 - our own bytes


def test_splits_are_named_where_one_is_missing_or_unknown(saved: Path) -> None:
    with pytest.raises(InputError, match="give one with --split; the splits are train, test"):
        expand([str(saved / "two")])
    with pytest.raises(InputError, match="there is no split 'dev'; the splits are train, test"):
        expand([str(saved / "two")], split="dev")


def test_a_split_for_files_without_splits_is_refused(folder: Path) -> None:
    with pytest.raises(OptionError, match="--split train: no input is a data set with splits"):
        expand([str(folder / "a.jsonl")], split="train")


def test_a_saved_data_set_that_lost_a_file_is_refused(tmp_path: Path, saved: Path) -> None:
    state = {"_data_files": [{"filename": "data-00000.arrow"}], "_split": "train"}
    (tmp_path / "state.json").write_text(json.dumps(state))
    with pytest.raises(InputError, match=r"data-00000\.arrow: no such file"):
        expand([str(tmp_path)])
    with pytest.raises(InputError, match="holds the split 'train', not --split test"):
        expand([str(tmp_path)], split="test")
    (tmp_path / "data-00000.arrow").write_bytes(b"\x00" * 64)
    with pytest.raises(InputError, match=r"data-00000\.arrow: not a whole Arrow file"):
        texts(expand([str(tmp_path)]))
    whole = next(iter(sorted((saved / "one").glob("*.arrow")))).read_bytes()
    (tmp_path / "data-00000.arrow").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="cut or damaged"):
        texts(expand([str(tmp_path)]))
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(InputError, match=r"state\.json: cannot be read"):
        expand([str(tmp_path)])


def test_a_run_is_read_again_as_it_was_read(tmp_path: Path, saved: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    rows = [{"q": row["messages"][0]["content"], "a": "x"} for row in TALKS]
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    run = Run(tmp_path / "run")
    (file,) = expand([str(path)])
    options = ReadOptions(columns={"user": "q", "assistant": "a"}, source_column="a")
    run.update(data={"files": [file.describe()], "read": options.to_dict()})
    run.record("coverage", {})
    found = list(run_conversations(run, SkipLog()))
    assert [(c.kind, c.source) for c in found] == [("mapped", "x")] * 7
    path.write_bytes(gzip.compress(JSONL))
    with pytest.raises(MismatchError, match=r"rows\.jsonl\.gz: content differs"):
        next(run_conversations(run, SkipLog()))
    path.unlink()
    with pytest.raises(InputError, match="the run was counted on it"):
        next(run_conversations(run, SkipLog()))
    (split,) = expand([str(saved / "two")], split="test")
    run.update(data={"files": [split.describe()], "skip_bad_rows": True})
    assert len(list(run_conversations(run, SkipLog()))) == 2


def test_options_survive_run_json() -> None:
    options = ReadOptions(skip_bad_rows=True, columns={"assistant": "a"}, shard=Shard(0, 4))
    assert ReadOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options
    assert ReadOptions.from_dict({}) == ReadOptions()
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 - our own bytes


@pytest.mark.usefixtures("folder")
def test_a_source_that_is_named_again_is_kept_once(saved: Path) -> None:
    Path("link.jsonl").symlink_to("a.jsonl")
    names = ["a.jsonl", "./a.jsonl", "link.jsonl", "[ab].jsonl", f"{saved}/one", f"{saved}/one/"]
    kept, repeats = without_repeats(expand(names))
    assert [source.name for source in kept] == ["a.jsonl", "b.jsonl", f"{saved}/one"]
    assert repeats == ["./a.jsonl", "link.jsonl", "a.jsonl", f"{saved}/one/"]
    train = expand([f"{saved}/two"], split="train")
    inside = expand([f"{saved}/two/train", f"{saved}/two/test"])
    kept, _ = without_repeats([*train, *inside])
    assert [Path(source.name).name for source in kept] == ["two", "test"]


@pytest.mark.parametrize("name", ["x" * 300, "x" * 5000, "a.jsonl/" + "x" * 300 + "/*"])
@pytest.mark.usefixtures("folder")
def test_a_name_that_no_file_can_have_is_one_short_line(name: str) -> None:
    with pytest.raises(InputError) as caught:
        expand([name])
    assert len(str(caught.value)) < 500


def test_a_folder_that_may_not_be_looked_into_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(InputError, match=r": cannot be read \(Permission denied\)\.$"):
        expand([str(tmp_path)])


def test_a_file_name_that_is_not_utf8_is_refused_before_anything_is_counted(folder: Path) -> None:
    name = os.fsdecode(b"bad\xff.jsonl")
    try:
        (folder / name).write_bytes(JSONL)
    except OSError:
        pytest.skip("this file system takes no such name")
    for typed in (name, "bad*"):
        with pytest.raises(InputError, match=r"dcff\}\.jsonl: the name is not UTF-8"):
            expand([typed])
