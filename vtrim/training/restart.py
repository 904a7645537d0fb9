"""The training that ``--restart`` replaces, kept until the new one has done a step; the lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vtrim.artifacts import lock_file
from vtrim.errors import InputError
from vtrim.training.checkpoint import list_checkpoints, remove_tree


class Earlier:
    """The training in ``folder`` that another one is to replace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept = folder.with_name(f"{folder.name}.old")

    def set_aside(self) -> None:
        """Empties ``folder``; a training with checkpoints takes the name ``train.old``."""
        if list_checkpoints(self.folder / "checkpoints"):
            remove_tree(self.kept)
            self.folder.rename(self.kept)
        else:
            remove_tree(self.folder)

    def put_back(self) -> None:
        """Undoes ``set_aside``, unless the new training has done a step."""
        if self.kept.exists():
            remove_tree(self.folder)
            self.kept.rename(self.folder)

    @contextmanager
    def back_on_error(self) -> Iterator[None]:
        """Runs the block that trains anew; what it refuses to do leaves the earlier one in place.

        A signal does not: the same line goes on with the new training.
        """
        try:
            yield
        except Exception:
            self.put_back()
            raise

    def drop(self) -> None:
        """Deletes it: the new training has done a step."""
        remove_tree(self.kept)


@contextmanager
def training_lock(root: Path) -> Iterator[None]:
    """Holds a run folder until the block ends, against another training in it.

    Raises:
        InputError: another one is at work there, or the folder cannot be written.
    """
    path = root / ".train.lock"
    try:
        file = path.open("a")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error}).") from error
    with file:
        taken = InputError(
            f"{root}: another `vtrim train-draft` is at work here. Wait for it, stop it, or "
            "name another run folder with --run."
        )
        lock_file(file, taken)
        yield
