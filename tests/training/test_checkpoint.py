"""Checkpoints appear whole or not at all; the newest are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vtrim.errors import InputError
from vtrim.training.checkpoint import list_checkpoints, save_checkpoint
from vtrim.training.log import MetricsLog


class Engine:
    """Writes as DeepSpeed does; fails half way when told to."""

    fail = False

    def save_checkpoint(self, folder: str, tag: str, client_state: Any, save_latest: bool) -> None:
        del client_state, save_latest
        path = Path(folder) / tag
        path.mkdir()
        (path / "model.pt").write_bytes(b"half")
        if self.fail:
            raise OSError("no space left")
        (path / "optimizer.pt").write_bytes(b"rest")


def test_only_the_newest_checkpoints_stay(tmp_path: Path) -> None:
    for step in (2, 4, 10, 6):
        save_checkpoint(Engine(), tmp_path, step, {}, keep=2)
    assert [p.name for p in list_checkpoints(tmp_path)] == ["step-00000010", "step-00000006"]


def test_a_save_that_fails_half_way_leaves_no_checkpoint_under_a_final_name(
    tmp_path: Path,
) -> None:
    save_checkpoint(Engine(), tmp_path, 1, {}, keep=2)
    broken = Engine()
    broken.fail = True
    with pytest.raises(InputError, match="no space"):
        save_checkpoint(broken, tmp_path, 2, {}, keep=2)
    assert [p.name for p in list_checkpoints(tmp_path)] == ["step-00000001"]
    save_checkpoint(Engine(), tmp_path, 3, {}, keep=2)  # the leftovers are no obstacle
    assert [p.name for p in list_checkpoints(tmp_path)] == ["step-00000003", "step-00000001"]


def test_the_log_is_cut_back_to_the_checkpoint_and_survives_a_half_written_line(
    tmp_path: Path,
) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step in range(1, 6):
        log.append({"kind": "train", "step": step})
    with log.path.open("a") as handle:
        handle.write('{"kind": "tr')
    log.cut_back(3)
    assert [entry["step"] for entry in log.read()] == [1, 2, 3]
