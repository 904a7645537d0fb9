"""An earlier training outlives a refused ``--restart``, and two never share a run folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from vtrim.errors import InputError
from vtrim.training.restart import Earlier, training_lock


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A folder with a checkpoint."""
    (tmp_path / "train" / "checkpoints" / "step-00000003").mkdir(parents=True)
    return tmp_path / "train"


def checkpoints(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("checkpoints/*")]


def restart(folder: Path, *, steps: int, error: BaseException | None) -> None:
    """A training that ends with ``error`` after so many steps."""
    earlier = Earlier(folder)
    with earlier.back_on_error():
        earlier.set_aside()
        (folder / "checkpoints").mkdir(parents=True)
        for _ in range(steps):
            earlier.drop()
        if error is not None:
            raise error


def test_a_restart_that_is_refused_before_its_first_step_changes_nothing(trained: Path) -> None:
    with pytest.raises(InputError):
        restart(trained, steps=0, error=InputError("no"))
    assert checkpoints(trained) == ["step-00000003"]
    assert [path.name for path in trained.parent.iterdir()] == ["train"]


def test_a_restart_that_has_done_a_step_replaces_the_earlier_training(trained: Path) -> None:
    with pytest.raises(InputError):
        restart(trained, steps=1, error=InputError("no"))
    assert checkpoints(trained) == []
    assert [path.name for path in trained.parent.iterdir()] == ["train"]


def test_a_restart_stopped_by_a_signal_keeps_the_earlier_training_aside(trained: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        restart(trained, steps=0, error=KeyboardInterrupt())
    assert checkpoints(trained) == []
    assert checkpoints(trained.with_name("train.old")) == ["step-00000003"]
    restart(trained, steps=0, error=None)  # begun anew once more: what is aside stays
    assert checkpoints(trained.with_name("train.old")) == ["step-00000003"]


def test_a_second_training_in_a_run_folder_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    at_work = pytest.raises(InputError, match=r"another `vtrim train-draft` is at work here")
    with training_lock(tmp_path), at_work:
        training_lock(tmp_path).__enter__()
    with training_lock(tmp_path):
        pass


def test_a_run_folder_that_is_not_there_cannot_be_held(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        training_lock(tmp_path / "none").__enter__()
