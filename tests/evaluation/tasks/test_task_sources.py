from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from vtrim.chat import hub_data
from vtrim.chat.conversation import Origin
from vtrim.errors import InputError, OptionError
from vtrim.evaluation.tasks import table
from vtrim.evaluation.tasks.sources import check_given, find_data
from vtrim.evaluation.tasks.table import Entry

ROW = {"question": "1 + 1?", "answer": "#### 2"}


def written(path: Path, *rows: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_file_is_read_whatever_its_name_is(tmp_path: Path) -> None:
    file = written(tmp_path / "mine.txt", ROW, ROW)
    found = find_data("gsm8k", file)
    assert list(found.rows()) == [(Origin(str(file), line), ROW) for line in (1, 2)]
    (described,) = found.describe()
    assert described["path"] == str(file)
    assert described["fingerprint"].startswith("sha256:")


def test_in_a_folder_the_task_s_files_are_found_below_it(tmp_path: Path) -> None:
    file = written(tmp_path / "deep" / "GSM8K_test.jsonl", ROW)
    written(tmp_path / "deep" / "gsm8k_train.jsonl", {"question": "no"})
    written(tmp_path / ".cache" / "gsm8k_test.jsonl", {"question": "no"})
    assert [origin.file for origin, _ in find_data("gsm8k", tmp_path).rows()] == [str(file)]


def test_a_folder_named_like_the_task_holds_its_test_split(tmp_path: Path) -> None:
    file = written(tmp_path / "gsm8k" / "main" / "test-00000.jsonl", ROW)
    assert [origin.file for origin, _ in find_data("gsm8k", tmp_path).rows()] == [str(file)]


def test_tables_of_texts_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "mgsm_fr.tsv").write_text('Un "et" un ?\t2\n', encoding="utf-8")
    (tmp_path / "mgsm_de.tsv").write_text("\ufeffEins?\t1\r\nZwei?\t2\r\n", encoding="utf-8")
    rows = [(Path(origin.file).name, origin.line, row)
            for origin, row in find_data("mgsm", tmp_path).rows()]  # fmt: skip
    assert rows == [
        ("mgsm_de.tsv", 1, ["Eins?", "1"]),
        ("mgsm_de.tsv", 2, ["Zwei?", "2"]),
        ("mgsm_fr.tsv", 1, ['Un "et" un ?', "2"]),
    ]


def test_cells_of_a_csv_may_hold_commas_and_line_ends(tmp_path: Path) -> None:
    (tmp_path / "law_test.csv").write_text('"What, then?\nSay",a,"b, c",d,e,B\n')
    ((origin, row),) = find_data("mmlu", tmp_path).rows()
    assert row == ["What, then?\nSay", "a", "b, c", "d", "e", "B"]
    assert origin.line == 2


@pytest.mark.parametrize("split", [None, "test"])
def test_a_saved_data_set_is_read_with_all_its_columns(tmp_path: Path, split: str | None) -> None:
    import datasets

    rows = {"question": ["?"], "choices": [["a", "b"]], "answer": [1], "text": ["unused"]}
    saved: Any = datasets.Dataset.from_dict(rows)
    if split:
        saved = datasets.DatasetDict({split: saved, "dev": saved})
    saved.save_to_disk(str(tmp_path / "mmlu"))
    ((_, row),) = find_data("mmlu", tmp_path).rows()
    assert row == {"question": "?", "choices": ["a", "b"], "answer": 1, "text": "unused"}


def test_parquet_is_read_with_all_its_columns(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    table_ = pa.table({"prompt": ["a"], "category": ["writing"], "reference": ["b"]})
    parquet.write_table(table_, tmp_path / "mt_bench.parquet")
    ((_, row),) = find_data("mt-bench", tmp_path).rows()
    assert row == {"prompt": "a", "category": "writing", "reference": "b"}


def test_a_folder_without_the_task_s_files_is_refused_with_what_was_looked_for(
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match=r"no data of --task gsm8k.*gsm8k\*test\*.*openai/gsm8k"):
        find_data("gsm8k", tmp_path)
    with pytest.raises(OptionError, match=r"a folder; name the file that --task jsonl is"):
        find_data("jsonl", tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b"", "no rows; the file is empty"),
        ("a.jsonl", b'{"question": ', r"a\.jsonl:1: not a whole JSON row"),
        ("a.tsv", b"", "no rows; the file is empty"),
        ("a.tsv", b"eins\t\xff\n", r"a\.tsv:1: no table of texts"),
        ("a.tsv", b"PK\x03\x04", "a zip archive"),
        ("a.parquet", b"PAR1 and no more", "not a whole parquet file"),
    ],
)
def test_data_that_cannot_be_read_stops_with_its_place(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=said):
        list(find_data("mgsm", tmp_path / name).rows())


def test_one_file_for_several_tasks_and_missing_data_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", ROW)
    check_given(["gsm8k"], file)
    check_given(["gsm8k", "mgsm"], tmp_path)
    check_given(["gsm8k", "mgsm"], None)
    with pytest.raises(OptionError, match=r"one file for 2 tasks; name the folder"):
        check_given(["gsm8k", "mgsm"], file)
    with pytest.raises(InputError, match=r"no such file or folder"):
        check_given(["gsm8k"], tmp_path / "none")


def test_an_installed_package_is_read_before_the_hub_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path / "some_eval" / "data" / "rows.jsonl", ROW)
    (tmp_path / "some_eval" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = Entry(code="", files=(), origin="there", package=("some_eval", ("data/rows.jsonl",)))
    monkeypatch.setattr(table, "TASKS", {"some": entry})
    monkeypatch.setattr("vtrim.evaluation.tasks.sources.TASKS", table.TASKS)
    assert [origin.file for origin, _ in find_data("some", None).rows()] == [str(file)]
    assert "some_eval" not in sys.modules
    file.unlink()
    with pytest.raises(InputError, match=r"pip install --no-deps some-eval, or name its file"):
        find_data("some", None)


def test_offline_or_without_a_place_on_the_hub_the_origin_is_named() -> None:
    with pytest.raises(InputError, match=r"--offline keeps from the hub: name its file.*openai"):
        find_data("gsm8k", None, offline=True)
    with pytest.raises(InputError, match=r"not on the hub: name its file.*Spec-Bench"):
        find_data("spec-bench", None)


def test_every_config_of_a_data_set_of_the_hub_is_a_source_of_one_revision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub_data, "hub_revision", lambda _hub_id: "abc")
    found = find_data("mgsm", None)
    assert {source.revision for source in found.sources} == {"abc"}
    assert len(found.sources) == 11
    assert found.describe()[1]["path"] == "juletxara/mgsm:de[test]"


def test_a_hub_that_cannot_be_asked_is_told_of_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def down(hub_id: str) -> str:
        raise InputError(f"{hub_id}: no such file here, and the hub cannot be asked (no route).")

    monkeypatch.setattr(hub_data, "hub_revision", down)
    with pytest.raises(InputError) as stopped:
        find_data("gsm8k", None)
    assert str(stopped.value) == (
        "--task gsm8k: openai/gsm8k: the hub cannot be asked (no route). Else name its file or "
        "folder with --task-data (it comes from openai/gsm8k)."
    )
