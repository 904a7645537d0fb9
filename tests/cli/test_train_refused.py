"""What ``train-draft`` refuses before the target is loaded, planned or not; nothing changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vtrim.models.target
from vtrim.artifacts import Run, write_json
from vtrim.cli.train_request import make_request
from vtrim.training.folder import prepare_folder
from vtrim.training.restart import training_lock

Vtrim = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def counted(tiny_target: Path, tiny_chat: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that coverage and search have been through."""
    from vtrim.cli.main import main

    run = tmp_path_factory.mktemp("refused") / "run"
    for words in (
        ["coverage", str(tiny_chat), "--target", str(tiny_target), "--run", str(run)],
        ["search", "--run", str(run)],
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert not ended.value.code
    return run


@pytest.fixture
def run(counted: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its target's weights cannot be loaded, and a training was begun in it (2 steps to go)."""

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the target was loaded")

    monkeypatch.setattr(vtrim.models.target, "load_target", never)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    begun = call_of(counted, max_steps=2)
    request = make_request(begun)
    prepare_folder(request.folder, begun.resolved, request.identity, processes=1, restart=True)
    (counted / "train" / "checkpoints" / "step-00000001").mkdir(parents=True, exist_ok=True)
    return counted


def call_of(run: Path, **settings: Any) -> Any:
    from vtrim.cli.train_call import TrainCall

    return TrainCall(
        settings=settings, run=Run(run), target=None, vocab=None, aux_layers=None,
        draft_config=None, deepspeed_config=None, restart=False, device=None, offline=True,
    )  # fmt: skip


def refused(call: Vtrim, run: Path, *options: object) -> str:
    """The one error line; no file of the run has changed."""
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    code, out, err = call("train-draft", "--run", run, *options)
    after = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    assert (code, out) == (2, ""), err
    assert before == after
    line = err.splitlines()[-1]
    assert line.startswith("error: "), err
    return line


@pytest.fixture
def bad(tmp_path: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Options that cannot be, by name, and words of their refusal."""
    file, manifest = tmp_path / "file", tmp_path / "other" / "manifest.json"
    file.touch()
    write_json(manifest, {"target_config": "sha256:0"})
    draft, heads = tmp_path / "draft.json", tmp_path / "heads.json"
    write_json(draft, {"intermediate_size": 0})
    write_json(heads, {"num_attention_heads": 3})
    return {
        "dimension": (["--draft-config", str(draft)], ["intermediate_size", "above 0"]),
        "heads": (["--draft-config", str(heads)], [str(heads), "3 heads", "evenly"]),
        "aux layers": (["--aux-layers", "1,2,80"], ["--aux-layers", "80", "1 to 7"]),
        "file": (["--cache-features", str(file)], ["is a file", "Name a folder"]),
        "below a file": (["--cache-features", str(file / "x")], ["is a file", str(file)]),
        "not writable": (["--cache-features", "/proc/x"], ["/proc", "cannot be written"]),
        "foreign": (["--cache-features", str(manifest.parent)], ["target config", str(manifest)]),
    }  # fmt: skip


@pytest.mark.parametrize("more", [(), ("--plan",), ("--restart",)], ids=["run", "plan", "restart"])
@pytest.mark.parametrize(
    "name",
    ["dimension", "heads", "aux layers", "file", "below a file", "not writable", "foreign"],
)
def test_what_cannot_be_is_refused_and_the_earlier_training_stays(
    run: Path, vtrim: Vtrim, bad: dict[str, tuple[list[str], list[str]]], name: str,
    more: tuple[str, ...],
) -> None:  # fmt: skip
    options, words = bad[name]
    line = refused(vtrim, run, "--max-steps", 2, *options, *more)
    assert all(word in line for word in words), line


@pytest.mark.parametrize("more", [(), ("--plan",)], ids=["run", "plan"])
def test_changed_settings_are_refused_before_the_target_is_loaded(
    run: Path, vtrim: Vtrim, more: tuple[str, ...]
) -> None:
    line = refused(vtrim, run, "--max-steps", 2, "--lr", "3e-4", *more)
    assert "--lr differs: 0.0003 now, 0.0001" in line
    line = refused(vtrim, run, "--max-steps", 2, "--aux-layers", "1,2,3", *more)
    assert "--aux-layers differs" in line


def test_another_training_in_the_folder_is_noticed(run: Path, vtrim: Vtrim) -> None:
    with training_lock(run):
        line = refused(vtrim, run, "--max-steps", 2)
        assert "another `vtrim train-draft` is at work here" in line
        several = refused(vtrim, run, "--max-steps", 2, "--num-gpus", 2, "--device", "cpu",
                          "--micro-batch", 4, "--restart")  # fmt: skip
        assert "another `vtrim train-draft` is at work here" in several


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--master-port", "29511"], "--master-port"),
        (["--muon-lr", "0.01"], "--muon-lr"),
        (["--shard-target"], "--shard-target"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    run: Path, vtrim: Vtrim, options: list[str], word: str
) -> None:
    assert word in refused(vtrim, run, *options)


def test_what_starts_processes_is_refused_inside_torchrun(
    run: Path, vtrim: Vtrim, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("TORCHELASTIC_RUN_ID", "none")):
        monkeypatch.setenv(name, value)
    for options in (["--master-port", 29511], ["--hostfile", tmp_path], ["--master-addr", "a"]):
        assert f"{options[0]}: torchrun" in refused(vtrim, run, *options)


def test_a_plan_for_other_machines_needs_no_program_that_reaches_them(
    run: Path, vtrim: Vtrim, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    hosts = tmp_path / "hosts"
    hosts.write_text("node-a slots=2\nnode-b slots=2\n")
    typed = ["--max-steps", 2, "--hostfile", hosts, "--restart", "--device", "cpu"]
    code, out, err = vtrim("train-draft", "--run", run, *typed, "--plan", "--json")
    assert code == 0, err
    assert json.loads(out)["processes"] == 4
    assert "pdsh" in refused(vtrim, run, *typed)
