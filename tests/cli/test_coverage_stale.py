from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from vtrim.artifacts import Run
from vtrim.cli.main import main


def data(path: Path, *replies: str) -> Path:
    rows = [
        {"messages": [{"role": "user", "content": "red"}, {"role": "assistant", "content": reply}]}
        for reply in replies
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def warned(err: str) -> list[str]:
    joined = " ".join(err.split())
    return [part for part in joined.split("warning: ") if "made from other counts" in part]


def test_a_vocabulary_and_a_draft_of_other_counts_are_named_in_one_line(
    cover: Callable, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, target = Run(tmp_path / "run"), ("--target", inputs / "target_chain")
    first = data(tmp_path / "a.jsonl", "red blue", "green")
    assert cover(run.root, first, *target).code == 0
    with pytest.raises(SystemExit):
        main(["search", "--cmin", "0", "--run", str(run.root)])
    assert run.vocab.exists(), capsys.readouterr().err
    assert warned(cover(run.root, first, *target).err) == []  # the same counts again
    run.draft.mkdir()
    second = data(tmp_path / "b.jsonl", "gold")
    (line,) = warned(cover(run.root, second, *target).err)
    assert line.startswith(
        "vocab.safetensors and draft/ were made from other counts: run `vtrim search` again, then "
        "`vtrim train-draft`."
    )
    run.vocab.unlink()
    (line,) = warned(cover(run.root, second, *target).err)
    assert line.startswith("draft/ was made from other counts")


def test_what_was_not_counted_by_segments_is_told(
    cover: Callable, inputs: Path, tmp_path: Path
) -> None:
    file = data(tmp_path / "a.jsonl", "red blue", "green", "")
    told = " ".join(cover(tmp_path / "run", file, "--target", inputs / "target_chain").err.split())
    assert "2 rows counted by segments, 2 of them checked" in told
    assert "the other 1 rendered whole; encoder: tokenizers" in told
