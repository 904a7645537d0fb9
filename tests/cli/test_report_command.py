from __future__ import annotations

import json
from pathlib import Path

import pytest

from vtrim.artifacts import Run
from vtrim.cli.main import main


def command(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["report", *map(str, arguments)])
    return int(stopped.value.code or 0)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "run")
    run.update(target={"name": "toy"})
    return run


def test_a_begun_run_gives_a_page_and_names_what_is_missing(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("--run", run.root) == 0
    assert "vtrim train-draft" in run.report.read_text(encoding="utf-8")
    captured = capsys.readouterr()
    assert "not in the report yet: search" in captured.err
    assert captured.out.splitlines()[-1] == f"report: {run.report}"


def test_json_is_one_object_that_names_the_page(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "elsewhere" / "[page].html"
    assert command("--run", run.root, "--output", output, "--json") == 0
    printed = capsys.readouterr().out
    result = json.loads(printed)
    assert printed.count("\n") == 1
    assert result["artifact"] == str(output)
    assert output.stat().st_size == result["bytes"]
    assert result["missing"] == ["coverage", "search", "train-draft", "eval"]
    assert not run.report.exists()


def test_a_folder_without_a_run_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("--run", tmp_path) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1


def test_what_is_stale_is_told_on_the_terminal_too(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run.vocab.write_bytes(b"cut")
    assert command("--run", run.root) == 0
    captured = capsys.readouterr()
    assert "warning: The run's vocabulary cannot be read" in captured.err


def test_runs_named_one_after_another_stand_side_by_side(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Run(tmp_path / "other")
    other.update(target={"name": "toy"})
    monkeypatch.chdir(tmp_path)
    assert command(run.root, other.root) == 0
    assert "vtrim-report.html" in capsys.readouterr().out
    page = (tmp_path / "vtrim-report.html").read_text(encoding="utf-8")
    assert f"vtrim train-draft --run {other.root}" in page
    assert not run.report.exists()


def test_a_run_can_be_named_without_an_option_and_take_another_format(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(run.root, "--format", "md", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["format"] == "md"
    assert result["artifact"] == str(run.root / "report.md")
    assert (run.root / "report.md").read_text(encoding="utf-8").startswith("# toy\n")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--run", "elsewhere"], "--run elsewhere: stands beside the run"),
        (["--format", "pdf"], "--format pdf: unknown. Known: html, md, json."),
        (["-o", "{run}/r.txt"], "r.txt: ends in none of html, md, json; give --format."),
        (["{run}"], "named twice"),
    ],
)
def test_what_cannot_be_reported_is_one_line(
    run: Run, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = [one.format(run=run.root) for one in more]
    assert command(run.root, *typed) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert not list(run.root.glob("report.*"))
