"""What a name after ``vtrim coverage`` stands for: each file once, columns that are there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vtrim.artifacts import Run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A file of one row."""
    turns = [{"role": "user", "content": "red"}, {"role": "assistant", "content": "cat dog"}]
    row: dict[str, Any] = {"messages": turns, "meta": {"set": "x"}}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row))
    return path


def test_a_file_that_is_named_again_counts_once_and_is_told(
    cover: Callable, data: Path, inputs: Path, tmp_path: Path
) -> None:
    (tmp_path / "link.jsonl").symlink_to(data)
    tokenizer = ["--tokenizer", inputs / "tok_words", "--json"]
    once = cover(tmp_path / "one", data, *tokenizer)
    again = cover(tmp_path / "two", data, tmp_path / "*.jsonl", *tokenizer)
    assert again.json["tokens"] == once.json["tokens"]
    assert "named more than once, counted once: " in again.err
    assert "link.jsonl" in again.err
    assert len(Run(tmp_path / "two").read()["data"]["files"]) == 1


def test_a_source_column_that_is_not_there_is_refused_at_once(
    cover: Callable, data: Path, inputs: Path, tmp_path: Path
) -> None:
    tokenizer = ["--tokenizer", inputs / "tok_words"]
    found = cover(tmp_path / "run", data, *tokenizer, "--source-column", "domain")
    assert "--source-column domain: no such column; the columns are messages, meta." in found.error
    found = cover(tmp_path / "run", data, *tokenizer, "--source-column", "meta.set", "--json")
    assert list(found.json["sources"]) == ["x"]


def test_offline_no_data_set_of_the_hub_is_read(
    cover: Callable, inputs: Path, tmp_path: Path
) -> None:
    found = cover(tmp_path, "org/talks", "--tokenizer", inputs / "tok_words", "--offline")
    assert "org/talks: no such file here, and --offline keeps from the hub" in found.error
