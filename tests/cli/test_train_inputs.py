"""Hard and bad training data, through the real command."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

VTRIM = Path(sys.executable).with_name("vtrim")
TRAIN = ["--micro-batch", "1", "--ttt-steps", "2", "--dtype", "fp32", "--lr", "1e-3"]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        value: dict[str, Any] = json.loads(self.out)
        return value

    @property
    def error(self) -> str:
        """The one error line of a run that stopped on bad input."""
        assert (self.code, self.out) == (2, ""), (self.code, self.out, self.err)
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, self.err
        return lines[0]


def vtrim(run: Path, *arguments: object) -> Ended:
    done = subprocess.run(
        [str(VTRIM), *map(str, arguments), "--run", str(run), "--json"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr)


def counted(run: Path, target: Path, *data: object, options: tuple[str, ...] = ()) -> Path:
    """A run folder after coverage and search."""
    assert vtrim(run, "coverage", *data, "--target", target, *options).code == 0
    assert vtrim(run, "search", "--cmin", "0").code == 0
    return run


def losses(run: Path) -> list[float]:
    lines = (run / "train" / "metrics.jsonl").read_text().splitlines()
    return [entry["loss"] for entry in map(json.loads, lines)]


@pytest.mark.slow
def test_a_row_whose_reply_the_limit_cuts_off_is_reported_and_the_loss_is_never_nan(
    inputs: Path, tmp_path: Path
) -> None:
    data = inputs / "g08_long_rows.jsonl"
    run = counted(tmp_path / "run", inputs / "target_chain", data, options=("--max-length", "12"))
    ended = vtrim(run, "train-draft", *TRAIN, "--max-steps", "4")
    assert ended.json["steps"] == 4
    assert "skipped rows: reply beyond max length: 1" in ended.err
    assert f"{data}:2: no reply token within --max-length 12" in ended.err
    assert "2 training samples (6 reply tokens), 0 held out" in ended.err
    assert "no conversation is held out: the last weights are kept" in ended.err
    assert ended.json["heldout_joint_prefix"] is None
    assert losses(run)
    assert all(math.isfinite(loss) for loss in losses(run))


@pytest.mark.slow
def test_a_draft_for_a_padded_head_keeps_no_padding_row(inputs: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    data = inputs / "g11_bulk.jsonl"
    run = counted(tmp_path / "run", inputs / "target_chain", data)
    assert vtrim(run, "train-draft", *TRAIN, "--max-steps", "3").json["steps"] == 3
    tensors = load_file(run / "draft" / "model.safetensors")
    kept = tensors["t2d"].nonzero()[:, 0].tolist()
    assert len(tensors["t2d"]) == 64
    assert len(kept) == json.loads((run / "draft" / "config.json").read_text())["draft_vocab_size"]
    assert max(kept) < 54
    assert [row + offset for row, offset in enumerate(tensors["d2t"].tolist())] == kept


@pytest.fixture(scope="module")
def bulk(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of two files without sources, of 100 and 200 rows, for its own target."""
    folder = tmp_path_factory.mktemp("bulk")
    shutil.copytree(inputs / "target_chain", folder / "target")
    lines = (inputs / "g11_bulk.jsonl").read_text().splitlines(keepends=True)
    files = [folder / "talk.jsonl", folder / "news.jsonl"]
    for file, part in zip(files, (lines[:100], lines[100:]), strict=True):
        file.write_text("".join(part))
    return counted(folder / "run", folder / "target", *files)


def copy_of(bulk: Path, folder: Path) -> Path:
    return shutil.copytree(bulk, folder / "run")


@pytest.mark.slow
def test_weights_change_how_often_a_source_comes_and_a_resume_must_repeat_them(
    bulk: Path, tmp_path: Path
) -> None:
    run = copy_of(bulk, tmp_path)
    options = [*TRAIN, "--max-steps", "2", "--mix", "talk=2", "--mix", "news=0.5"]
    ended = vtrim(run, "train-draft", *options)
    shares = ended.json["sources"]
    assert sorted(shares) == ["news", "talk"]
    assert shares["talk"]["mixed_samples"] == 2 * shares["talk"]["samples"]
    assert shares["talk"]["mixed_tokens"] == 2 * shares["talk"]["tokens"]
    assert 0 < shares["news"]["mixed_samples"] < shares["news"]["samples"]
    total = sum(share["mixed_samples"] for share in shares.values())
    assert f"{total} training samples" in ended.err
    assert f"source talk: weight 2, {shares['talk']['samples']} samples" in ended.err
    assert json.loads((run / "run.json").read_text())["steps"]["train-draft"]["sources"] == shares
    changed = vtrim(run, "train-draft", *options[:-2]).error
    assert "mix" in changed
    assert "--restart" in changed


@pytest.mark.slow
def test_bad_weights_and_limits_are_one_line_before_the_model_is_loaded(bulk: Path) -> None:
    (bulk.parent / "target" / "model.safetensors").rename(bulk.parent / "hidden")
    try:
        unknown = vtrim(bulk, "train-draft", *TRAIN, "--mix", "code=2").error
        assert unknown == "error: --mix code: no such source. Known: news, talk."
        limit = vtrim(bulk, "train-draft", *TRAIN, "--max-length", "4").error
        assert "no row has a reply token within --max-length 4" in limit
        assert "Raise --max-length." in limit
    finally:
        (bulk.parent / "hidden").rename(bulk.parent / "target" / "model.safetensors")


@pytest.mark.slow
def test_weights_that_leave_no_sample_are_one_line(bulk: Path) -> None:
    nothing = vtrim(bulk, "train-draft", *TRAIN, "--mix", "news=0", "--mix", "talk=0").error
    assert "--mix leaves none of" in nothing


@pytest.mark.slow
def test_a_tokenizer_that_is_not_the_counted_one_is_refused_by_its_fingerprint(
    bulk: Path, tmp_path: Path
) -> None:
    run, tokenizer = copy_of(bulk, tmp_path), bulk.parent / "target" / "tokenizer.json"
    whole = tokenizer.read_text()
    words = json.loads(whole)
    table = words["model"]["vocab"]
    table["red"], table["blue"] = table["blue"], table["red"]
    tokenizer.write_text(json.dumps(words))
    try:
        error = vtrim(run, "train-draft", *TRAIN, "--max-steps", "1").error
    finally:
        tokenizer.write_text(whole)
    assert "tokenizer" in error
    assert "vtrim coverage" in error


def test_a_weight_that_is_none_is_refused_at_once(
    vtrim: Any, tmp_path: Path, tiny_target: Path, tiny_chat: Path
) -> None:
    run = tmp_path / "run"
    assert vtrim("coverage", tiny_chat, "--target", tiny_target, "--run", run)[0] == 0
    assert vtrim("search", "--cmin", "0", "--run", run)[0] == 0
    for typed in ("chat", "chat=-1", "chat=nan"):
        code, out, err = vtrim("train-draft", "--run", run, "--mix", typed)
        assert (code, out) == (2, "")
        assert err.splitlines()[-1].startswith(f"error: --mix {typed}: ")
