from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vtrim.artifacts import Run, fingerprint_file
from vtrim.cli.main import main
from vtrim.trimming.coverage import Coverage


@dataclass
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1, self.out
        value: dict[str, Any] = json.loads(self.out)
        return value


@pytest.fixture
def vtrim(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    """vtrim(*arguments) -> how `vtrim coverage ARGUMENTS --run TMP/run` ended."""
    monkeypatch.delenv("VTRIM_RUN", raising=False)
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main(["coverage", *map(str, arguments), "--run", str(tmp_path / "run")])
        captured = capsys.readouterr()
        return Outcome(int(stop.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return tmp_path / "run" / "coverage.npz"


def row(reply: str, asked: str = "red", role: str = "assistant") -> str:
    turns = [{"role": "user", "content": asked}, {"role": role, "content": reply}]
    return json.dumps({"messages": turns}) + "\n"


def test_json_prints_the_promised_fields(vtrim: Callable, inputs: Path, artifact: Path) -> None:
    found = vtrim(inputs / "g11_bulk.jsonl", "--target", inputs / "target_chain", "--json").json
    assert found["rows_used"] == 300
    assert found["rows_skipped"] == {}
    assert found["tokens"] == 8751
    assert found["distinct"] == 48
    assert found["target_vocab_size"] == 64
    assert found["k_for"] == {"0.90": 21, "0.95": 31, "0.99": 44}
    assert found["forced"] == [51]
    assert found["coverage"]["20"] == 7855 / 8751
    assert found["coverage"]["50"] == 1.0
    assert found["artifact"] == str(artifact)
    assert Path(found["artifact"]).exists()


def test_the_artifact_holds_counts_for_every_row_of_the_head(
    vtrim: Callable, inputs: Path, artifact: Path
) -> None:
    vtrim(inputs / "g11_ties.jsonl", "--target", inputs / "target_chain", "--json")
    counted = Coverage.load(artifact)
    assert counted.counts.shape == (64,)
    assert counted.total == 100
    curve = counted.curve()
    assert [curve.covered(k) for k in range(1, 9)] == [2, 42, 67, 82, 92, 96, 98, 100]
    assert counted.tokenizer_length == 54


def test_the_order_of_rows_does_not_matter(vtrim: Callable, inputs: Path, artifact: Path) -> None:
    kept = []
    for name in ("g11_ties.jsonl", "g11_ties_reversed.jsonl"):
        vtrim(inputs / name, "--target", inputs / "target_chain")
        kept.append(Coverage.load(artifact))
    assert np.array_equal(kept[0].counts, kept[1].counts)
    assert kept[0].curve().ids(6) == kept[1].curve().ids(6)


def test_the_run_folder_records_target_data_and_step(
    vtrim: Callable, inputs: Path, artifact: Path
) -> None:
    path = inputs / "g11_bulk.jsonl"
    vtrim(path, "--target", inputs / "target_chain", "--json")
    run = Run(artifact.parent)
    manifest = run.read()
    assert manifest["target"]["name"] == str((inputs / "target_chain").resolve())
    assert manifest["target"]["stop_ids"] == [51]
    assert (manifest["target"]["vocab_size"], manifest["target"]["tokenizer_length"]) == (64, 54)
    assert manifest["data"]["files"] == [
        {
            "path": str(path),
            "bytes": path.stat().st_size,
            "fingerprint": fingerprint_file(path),
            "format": "jsonl",
            "split": None,
        }
    ]
    assert manifest["data"]["rows_used"] == 300
    step = run.step("coverage")
    counted = Coverage.load(artifact)
    assert step["tokens"] == 8751
    assert step["coverage_fingerprint"] == counted.fingerprint
    assert step["data_fingerprint"] == counted.data_fingerprint == fingerprint_file(path)
    assert json.loads(run.target_config.read_text())["vocab_size"] == 64


def test_equal_content_gives_equal_bytes(vtrim: Callable, inputs: Path, artifact: Path) -> None:
    saved = []
    for _ in range(2):
        vtrim(inputs / "g11_bulk.jsonl", "--target", inputs / "target_chain")
        saved.append(artifact.read_bytes())
    assert saved[0] == saved[1]


def test_several_files_count_as_the_merge_of_their_own_counts(
    vtrim: Callable, inputs: Path, artifact: Path
) -> None:
    names = [inputs / "g11_bulk.jsonl", inputs / "g02_plain.jsonl.gz"]
    parts = []
    for name in names:
        vtrim(name, "--target", inputs / "target_chain")
        parts.append(Coverage.load(artifact))
    vtrim(*names, "--target", inputs / "target_chain")
    assert Coverage.load(artifact).fingerprint == parts[0].merge(parts[1]).fingerprint


def test_a_tokenizer_alone_is_enough_to_count(
    vtrim: Callable, inputs: Path, artifact: Path
) -> None:
    found = vtrim(inputs / "g11_bulk.jsonl", "--tokenizer", inputs / "tok_words", "--json").json
    assert (found["target_vocab_size"], found["tokens"]) == (54, 8751)
    run = Run(artifact.parent)
    assert run.read()["target"]["name"] is None
    assert not run.target_config.exists()


def test_the_built_in_target_is_used_and_named_when_none_is_given(
    vtrim: Callable, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(inputs / "target_chain", tmp_path / "cache" / "SmolLM2-135M-Instruct")
    monkeypatch.setenv("VTRIM_CACHE", str(tmp_path / "cache"))
    outcome = vtrim(inputs / "g11_bulk.jsonl", "--json")
    assert outcome.json["tokens"] == 8751
    assert "smollm2" in outcome.err.splitlines()[0]
    assert "smollm2 (from" in vtrim(inputs / "g11_bulk.jsonl").err.splitlines()[0]


def test_the_table_shows_the_curve_the_shares_and_the_forced_tokens(
    vtrim: Callable, inputs: Path
) -> None:
    outcome = vtrim(inputs / "g11_bulk.jsonl", "--target", inputs / "target_chain")
    assert outcome.code == 0
    assert "held-out C(k)" in outcome.out
    assert "89.76 %" in outcome.out
    assert "smallest k for 95%" in outcome.out
    assert "51 '<|done|>'" in outcome.out
    assert "300 rows: messages 300" in outcome.err


def test_tokens_to_keep_are_seated_first(vtrim: Callable, inputs: Path) -> None:
    found = vtrim(
        inputs / "g11_bulk.jsonl", "--target", inputs / "target_chain", "--keep", 52, "--json"
    ).json
    assert found["forced"] == [51, 52]
    assert found["k_for"]["0.95"] == 32


def test_bad_rows_are_skipped_on_request_and_shown(vtrim: Callable, inputs: Path) -> None:
    outcome = vtrim(
        inputs / "g02_cut_last.jsonl", "--tokenizer", inputs / "tok_words", "--skip-bad-rows",
        "--json",
    )  # fmt: skip
    assert (outcome.json["tokens"], outcome.json["rows_skipped"]) == (7, {"bad JSON": 1})
    assert "g02_cut_last.jsonl:3" in outcome.err


def test_rows_of_both_kinds_are_told_apart_and_skipped_rows_named(
    vtrim: Callable, inputs: Path
) -> None:
    outcome = vtrim(
        inputs / "g03_sharegpt_alias.jsonl", inputs / "g04_order.jsonl", "--tokenizer",
        inputs / "tok_words_nogen", "--json",
    )  # fmt: skip
    assert outcome.json["rows_skipped"] == {"unknown role": 1, "no reply": 3}
    assert outcome.json["rows_used"] == 10
    assert " rows: messages 7, sharegpt 6" in outcome.err
    assert "g03_sharegpt_alias.jsonl:7" in outcome.err


def test_the_length_limit_is_the_one_training_will_use(
    vtrim: Callable, inputs: Path, artifact: Path
) -> None:
    found = vtrim(
        inputs / "g08_long_rows.jsonl", "--tokenizer", inputs / "tok_words", "--max-length", 12,
        "--json",
    ).json  # fmt: skip
    assert (found["tokens"], found["rows_used"]) == (6, 2)
    assert found["rows_skipped"] == {"reply beyond max length": 1}
    assert Run(artifact.parent).read()["data"]["max_length"] == 12


def test_a_template_of_ones_own_replaces_the_tokenizers(
    vtrim: Callable, inputs: Path, tmp_path: Path, artifact: Path
) -> None:
    think = json.loads((inputs / "tok_words_think" / "tokenizer_config.json").read_text())
    own = tmp_path / "own.jinja"
    own.write_text(think["chat_template"])
    path = inputs / "g07_think_two_turns.jsonl"
    found = vtrim(path, "--tokenizer", inputs / "tok_words", "--template", own, "--json").json
    assert found["tokens"] == 24
    assert (artifact.parent / "target" / "chat_template.jinja").read_text() == own.read_text()


def test_square_brackets_in_names_and_data_are_shown_unchanged(
    vtrim: Callable, inputs: Path, tmp_path: Path
) -> None:
    path = tmp_path / "[bold]x[red].jsonl"
    path.write_text(row("[bold] [/] [red] no") + row("x", role="[/]"))
    outcome = vtrim(path, "--tokenizer", inputs / "tok_words")
    assert outcome.code == 0
    assert "[bold]x[red].jsonl:2: role '[/]'" in outcome.err
    shared = vtrim(inputs / "g24_brackets.jsonl", "--tokenizer", inputs / "tok_words", "--json")
    assert shared.json["tokens"] == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("empty.jsonl",), "no rows"),
        (("g02_cut_last.jsonl",), "g02_cut_last.jsonl:3"),
        (("g02_trailing_comma.jsonl",), "g02_trailing_comma.jsonl:1"),
        (("g04_nothing_to_count.jsonl",), "no assistant tokens"),
        (("g04_order.jsonl", "--max-length", "2"), "no assistant tokens"),
        (("nowhere.jsonl",), "no such file"),
        (("tok_words",), "a folder, and not one"),
        (("g11_bulk.jsonl", "--max-length", "0"), "--max-length"),
        (("g11_bulk.jsonl", "--keep", "54"), "--keep 54"),
        (("g11_bulk.jsonl", "--keep", "x"), "--keep"),
        (("g11_bulk.jsonl", "--no-such-option"), "--no-such-option"),
        (("g11_bulk.jsonl", "--target", "x"), "--target and --tokenizer"),
        (("g11_bulk.jsonl", "--template", "nowhere.jinja"), "nowhere.jinja"),
        ((), "DATA"),
    ],
)
def test_bad_input_is_one_line_on_stderr_and_leaves_no_artifact(
    vtrim: Callable, inputs: Path, artifact: Path, arguments: tuple[str, ...], message: str
) -> None:
    named = [inputs / arguments[0], *arguments[1:]] if arguments else []
    outcome = vtrim(*named, "--tokenizer", inputs / "tok_words", "--json")
    assert outcome.code == 2
    assert outcome.out == ""
    (line,) = outcome.err.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert not artifact.exists()


def test_a_folder_without_a_tokenizer_or_config_is_one_error_line(
    vtrim: Callable, inputs: Path, tmp_path: Path
) -> None:
    (tmp_path / "nothing").mkdir()
    for option, folder in (("--target", tmp_path / "nothing"), ("--target", inputs / "tok_words")):
        outcome = vtrim(inputs / "g11_bulk.jsonl", option, folder)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.splitlines()[-1].startswith(f"error: {folder.resolve()}")


def test_a_full_disk_leaves_nothing_under_the_final_name(
    vtrim: Callable, inputs: Path, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    outcome = vtrim(inputs / "g11_bulk.jsonl", "--tokenizer", inputs / "tok_words")
    assert outcome.code == 2
    assert "No space left on device" in outcome.err.splitlines()[-1]
    assert list(artifact.parent.iterdir()) == []


def test_a_run_folder_that_cannot_be_made_is_one_error_line(
    vtrim: Callable, inputs: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    outcome = vtrim(inputs / "g11_bulk.jsonl", "--tokenizer", inputs / "tok_words")
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith("error: ")


def test_counts_that_differ_between_the_paths_are_made_again_by_full_renders(
    vtrim: Callable, inputs: Path, tmp_path: Path
) -> None:
    own = tmp_path / "long.jinja"
    own.write_text(
        "{% for m in messages %}{{ '<|turn|>' + m['role'] + '\n' }}"
        "{{ m['content'] if m['content'] | length < 50 else 'owl' }}{{ '<|done|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|turn|>assistant\n' }}{% endif %}"
    )
    data = tmp_path / "long.jsonl"
    data.write_text(row("cat") + row("cat " * 40))
    outcome = vtrim(data, "--tokenizer", inputs / "tok_words", "--template", own, "--json")
    assert outcome.json["tokens"] == 4  # cat done, owl done
    assert "counting again by full renders" in outcome.err


def test_help_shows_an_example(vtrim: Callable) -> None:
    outcome = vtrim("--help")
    assert outcome.code == 0
    assert "vtrim coverage chat.jsonl --target" in outcome.out
    assert "(tokens)" in outcome.out


def test_the_real_command_prints_json_alone_on_stdout(inputs: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vtrim", "coverage", inputs / "g01_array.json", "--tokenizer",
         inputs / "tok_words", "--run", tmp_path / "run", "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tokens"] == 11
