"""Checkpoints appear whole or not at all; a cut or edited one is found out; the newest are kept."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vtrim.errors import InputError
from vtrim.training.checkpoint import (
    LISTING,
    _finish,
    drop_newer,
    kept_states,
    list_checkpoints,
    newest_whole,
    read_listing,
    remove_tree,
    save_checkpoint,
)
from vtrim.training.log import MetricsLog

STATES = "model.pt"


class Engine:
    """Writes as DeepSpeed does; fails half way when told to."""

    fail = False

    def save_checkpoint(self, folder: str, tag: str, client_state: Any, save_latest: bool) -> None:
        del client_state, save_latest
        path = Path(folder) / tag
        path.mkdir()
        (Path(folder) / "recover.py").write_text("left beside the folder, as DeepSpeed does")
        (path / STATES).write_bytes(b"half")
        if self.fail:
            raise OSError(28, "No space left on device")
        (path / "optimizer.pt").write_bytes(b"rest")


def save(folder: Path, *steps: int, keep: int = 2, engine: Engine | None = None) -> None:
    for step in steps:
        state = {"step": step, "best": {"step": step // 2}}
        save_checkpoint(engine or Engine(), folder, state, keep, {"processes": 1})


def names(folder: Path) -> list[str]:
    return [p.name for p in list_checkpoints(folder)]


def test_only_the_newest_checkpoints_stay(tmp_path: Path) -> None:
    save(tmp_path, 2, 4, 10)
    assert names(tmp_path) == ["step-00000010", "step-00000004"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000004", "step-00000010"]


def test_a_checkpoint_lists_its_files_and_carries_the_state_of_the_run(tmp_path: Path) -> None:
    save(tmp_path, 3)
    found, listing, problems = newest_whole(tmp_path)
    assert (found, problems) == (tmp_path / "step-00000003", [])
    assert listing["state"] == {"step": 3, "best": {"step": 1}}
    assert listing["processes"] == 1
    assert {name: entry["bytes"] for name, entry in listing["files"].items()} == {
        STATES: 4,
        "optimizer.pt": 4,
    }
    assert kept_states(tmp_path) == [listing["state"]]


def test_a_save_that_fails_half_way_leaves_no_checkpoint_and_gives_its_space_back(
    tmp_path: Path,
) -> None:
    save(tmp_path, 1)
    broken = Engine()
    broken.fail = True
    with pytest.raises(InputError, match=r"step-00000002.*No space left.*before it is whole"):
        save(tmp_path, 2, engine=broken)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]
    save(tmp_path, 3)
    assert names(tmp_path) == ["step-00000003", "step-00000001"]


def test_a_checkpoint_without_the_files_of_another_process_gets_no_name(tmp_path: Path) -> None:
    written = tmp_path / "tag"
    written.mkdir()
    (written / STATES).write_bytes(b"whole")
    problem = _finish(written, tmp_path / "step-00000001", {}, {STATES, "rank_1_states.pt"})
    assert problem is not None
    assert "rank_1_states.pt of another process" in problem
    assert "share" in problem
    assert list_checkpoints(tmp_path) == []


def test_names_are_on_disk_before_an_older_checkpoint_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)
    calls: list[str] = []
    sync, rename = os.fsync, Path.replace

    def synced(handle: int) -> None:
        name = Path(f"/proc/self/fd/{handle}").readlink()
        calls.append(f"sync {name.relative_to(tmp_path)}")
        sync(handle)

    def renamed(self: Path, target: Path) -> Path:
        calls.append(f"name {Path(target).relative_to(tmp_path)}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    save(tmp_path, 2, keep=1)
    named, gone = (
        calls.index(f"name {name}") for name in ("step-00000002", ".removing-step-00000001")
    )
    hidden = ".writing/step-00000002"
    assert {f"sync {hidden}", f"sync {hidden}/{STATES}"} <= set(calls[:named])
    assert calls[named - 1] == f"sync {hidden}"
    assert "sync ." in calls[named:gone]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda c: (c / STATES).write_bytes(b"hal"), "cut or changed (3 bytes, 4 written)"),
        (lambda c: (c / STATES).write_bytes(b"HALF"), "its checksum differs"),
        (lambda c: (c / STATES).unlink(), "missing"),
        (lambda c: (c / LISTING).unlink(), "no such file"),
        (lambda c: (c / LISTING).write_text("{"), "not a whole JSON file"),
        (
            lambda c: (c / LISTING).write_text((c / LISTING).read_text().replace(": 9", ": 8")),
            "changed after it was written",
        ),
    ],
    ids=["cut", "edited", "file-gone", "listing-gone", "listing-cut", "state-edited"],
)
def test_a_checkpoint_that_is_not_whole_is_named_and_the_one_before_it_used(
    tmp_path: Path, spoil: Any, words: str
) -> None:
    save(tmp_path, 6, 9)
    spoil(tmp_path / "step-00000009")
    found, listing, problems = newest_whole(tmp_path)
    assert found == tmp_path / "step-00000006"
    assert listing["state"]["step"] == 6
    assert len(problems) == 1
    assert "step-00000009" in problems[0]
    assert words in problems[0]
    drop_newer(tmp_path, found)
    assert names(tmp_path) == ["step-00000006"]


def test_without_a_whole_checkpoint_every_fault_and_the_remedy_are_told(tmp_path: Path) -> None:
    save(tmp_path, 6, 9)
    for checkpoint in list_checkpoints(tmp_path):
        (checkpoint / STATES).write_bytes(b"")
    with pytest.raises(InputError, match=r"(?s)00000009.*00000006.*--restart") as error:
        newest_whole(tmp_path)
    assert "\n" not in str(error.value)


def test_an_older_checkpoint_that_was_spoilt_does_not_stop_the_run(tmp_path: Path) -> None:
    save(tmp_path, 6, 9)
    (tmp_path / "step-00000006" / LISTING).write_text("{")
    assert [state["step"] for state in kept_states(tmp_path)] == [9]
    save(tmp_path, 12)
    assert names(tmp_path) == ["step-00000012", "step-00000009"]


def test_an_empty_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert newest_whole(tmp_path / "none") == (None, {}, [])


def test_what_kills_left_under_hidden_names_goes_with_the_next_save(tmp_path: Path) -> None:
    save(tmp_path, 1)
    for name in (".writing/step-00000002", ".removing-step-00000000", ".universal"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / STATES).write_bytes(b"half")
    save(tmp_path, 3)
    assert {p.name for p in tmp_path.iterdir()} == {"step-00000001", "step-00000003"}


def test_a_listing_knows_when_it_was_made_for_other_files(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    one, two = (tmp_path / f"step-0000000{n}" for n in (1, 2))
    (one / LISTING).write_text((two / LISTING).read_text())
    (one / STATES).write_bytes(b"else")
    with pytest.raises(InputError, match="checksum"):
        read_listing(one)


def test_a_folder_is_removed_together_with_what_an_earlier_removal_left(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / ".removing-train" / "old").mkdir(parents=True)
    remove_tree(tmp_path / "train")
    remove_tree(tmp_path / "train")  # there is none any more
    assert list(tmp_path.iterdir()) == []


class Monitor:
    """Takes events as DeepSpeed's monitor does."""

    enabled = True

    def __init__(self) -> None:
        self.events: list[tuple[str, float, int]] = []

    def write_events(self, events: list[tuple[str, float, int]]) -> None:
        self.events += events


def test_the_log_is_cut_back_to_the_checkpoint_and_survives_a_half_written_line(
    tmp_path: Path,
) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step in range(1, 6):
        log.append({"kind": "train", "step": step})
    with log.path.open("a") as handle:
        handle.write('{"kind": "tr')
    log.cut_back(3, 3)
    assert [entry["step"] for entry in log.read()] == [1, 2, 3]


def test_checks_of_a_draft_that_will_be_checked_again_are_dropped(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for kind, step in (("train", 1), ("heldout", 1), ("train", 2), ("heldout", 2), ("decode", 2)):
        log.append({"kind": kind, "step": step})
    log.cut_back(2, 1)  # saved after step 2, before its check
    assert [(e["kind"], e["step"]) for e in log.read()] == [
        ("train", 1),
        ("heldout", 1),
        ("train", 2),
    ]


def test_deepspeeds_monitor_gets_every_number_of_a_line_under_its_name_and_step(
    tmp_path: Path,
) -> None:
    monitor = Monitor()
    log = MetricsLog(tmp_path / "metrics.jsonl", monitor)
    log.append({"kind": "train", "step": 7, "loss": 2.5, "accuracy": [0.5, 0.25]})
    log.append({"kind": "decode", "step": 7, "acceptance_length": 1.5})
    assert monitor.events == [
        ("Train/loss", 2.5, 7),
        ("Train/accuracy_0", 0.5, 7),
        ("Train/accuracy_1", 0.25, 7),
        ("Decode/acceptance_length", 1.5, 7),
    ]


def test_a_number_that_is_not_finite_never_gets_into_the_log(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    with pytest.raises(ValueError, match="JSON"):
        log.append({"kind": "train", "step": 1, "loss": float("nan")})
    assert json.dumps(log.read()) == "[]"


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "stage"), [(0, 0), (0, 1), (1, 1), (1, 3)])
def test_a_full_disk_of_one_process_stops_all_with_one_line_and_the_run_can_go_on(
    training: Callable[..., Any], rank: int, stage: int
) -> None:
    run = training()
    options = ["--max-steps", 4, "--save-every", 2, "--dtype", "fp32", "--zero-stage", stage]
    fault = {"step": 4, "rank": rank, "what": "full disk"}
    children = run.start(*options, processes=2, fault=fault)
    codes = run.forks.wait(children)
    said = run.log.read_text()
    assert codes[rank] == 2, said
    assert codes[1 - rank] in (1, 2), said
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, said
    assert "step-00000004: the checkpoint cannot be written" in errors[0]
    assert "No space left on device" in errors[0]
    assert "Traceback" not in said
    assert "resumed at step 2" in run.train(*options, processes=2)


@pytest.mark.slow
def test_processes_without_a_shared_run_folder_are_refused_before_a_model_is_loaded(
    training: Callable[..., Any],
) -> None:
    run = training()
    training(f"{run.run.name}-elsewhere")  # the same input, on another disk
    fault = {"step": 0, "rank": 1, "what": "elsewhere"}
    said = run.train("--max-steps", 2, processes=2, code=2, fault=fault)
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, said
    assert f"{run.run.name}-elsewhere/train on " in errors[0]
    assert "storage that all machines share" in errors[0]
    assert not list(run.folder.glob(".group-*"))
    assert not (run.folder / "settings.json").exists()
