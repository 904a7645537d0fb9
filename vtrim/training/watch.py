"""Death of a process of the group: all others stop within seconds, and one says which it was.

A process that waits for a dead one would wait for ever (NCCL) or fail with words about sockets
(gloo). Each process therefore watches those of its machine; what one sees, those of other machines
read in the run folder, which all share.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from vtrim.errors import OwnError, VtrimError
from vtrim.training.launch import LAUNCHED_ENV

_PREFIX = ".died-"
_LOOK = 0.2  # seconds between two looks
_GRACE = 5.0  # seconds in which a process may still meet itself what made the other one end
_UNKNOWN = 10**6


@dataclass(frozen=True)
class Peer:
    """A process of the group."""

    rank: int
    host: str
    pid: int


def how_it_ended(pid: int) -> int | None:
    """None while the process runs; then its exit code, or minus the signal that killed it.

    _UNKNOWN: it is no more, and its parent has already taken note.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return _UNKNOWN if Path("/proc/self/stat").exists() else _asked(pid)
    if fields[0] not in "ZX":
        return None
    status = int(fields[49])
    return -(status & 0x7F) if status & 0x7F else status >> 8


def _asked(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return _UNKNOWN
    return None


def describe(peer: Peer, code: int, world: int) -> str:
    """What became of a process, in one line."""
    if code == _UNKNOWN:
        how = "died"
    elif code < 0:
        how = f"was killed by {signal.Signals(-code).name}"
    else:
        how = f"ended with exit code {code}"
    return (
        f"process {peer.rank} of {world} (pid {peer.pid} on {peer.host}) {how}; all processes "
        "stop. What was saved is whole: run the same line again to go on."
    )


def told(folder: Path) -> bool:
    """Whether a process of the group that trained in ``folder`` has said what stopped it."""
    return any(folder.glob(f"{_PREFIX}*told"))


def forget(folder: Path) -> None:
    """Removes what processes of an earlier group have left."""
    for file in folder.glob(f"{_PREFIX}*"):
        file.unlink(missing_ok=True)


class Watch:
    """Watches the other processes of the group from a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        own = Peer(self.rank, socket.gethostname(), os.getpid())
        everyone: list[Peer] = [own] * self.world
        if self.rank == 0:
            forget(folder)
        if self.world > 1:
            dist.all_gather_object(everyone, own)
        self.peers = [p for p in everyone if p.host == own.host and p.rank != self.rank]
        self.parent = int(os.environ.get(LAUNCHED_ENV, "0"))
        self.word = folder / f"{_PREFIX}{everyone[0].pid}"
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begins to watch, where there is somebody to watch."""
        if self.world > 1:
            self._thread.start()

    def stop(self) -> None:
        """Ends watching: from here on the others may go."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def dead(self) -> tuple[str, bool] | None:
        """What became of a process that is no more, and whether by force; None while all live."""
        if self.word.exists():
            return self.word.read_text(encoding="utf-8"), False
        for peer in self.peers:
            code = how_it_ended(peer.pid)
            if code:  # one that ended with 0 has done its work
                return describe(peer, code, self.world), code < 0 or code == _UNKNOWN
        if self.parent and how_it_ended(self.parent) is not None:
            return f"vtrim (pid {self.parent}), which started the processes, died; all stop.", True
        return None

    def tell(self, what: str, *, aloud: bool = True) -> None:
        """Leaves word for the other processes; the first of the group that does, says it."""
        self.word.parent.mkdir(parents=True, exist_ok=True)
        if not self.word.exists():
            self.word.write_text(what, encoding="utf-8")
        if not aloud:
            return
        try:
            self.word.with_name(f"{self.word.name}.told").touch(exist_ok=False)
        except FileExistsError:
            return
        with suppress(OSError):  # nobody may be left to read it
            sys.stderr.write(f"error: {what}\n")
            sys.stderr.flush()

    def mark_told(self) -> None:
        """Notes that the user knows what stopped the group."""
        self.word.parent.mkdir(parents=True, exist_ok=True)
        self.word.with_name(f"{self.word.name}.told").touch()

    def _run(self) -> None:
        while not self._done.wait(_LOOK):
            found = self.dead()
            if found is None:
                continue
            what, by_force = found
            if not by_force and self._done.wait(_GRACE):
                return
            self.tell(what)
            os._exit(1)  # the main thread may wait for the dead one for ever


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Runs the block as one of a group: it ends, with a line, when another of the group dies."""
    watch = Watch(folder)
    watch.start()
    try:
        yield
    except VtrimError as error:
        if watch.world > 1:
            what = f"process {watch.rank} of {watch.world}: {' '.join(str(error).split())}"
            with suppress(OSError):  # the disk may be full; those of this machine see it end
                if watch.rank == 0 or isinstance(error, OwnError):
                    watch.mark_told()  # the command line prints it
                watch.tell(what, aloud=False)  # else for process 0, unless it meets the same
        raise
    except Exception:
        found = _look_again(watch)
        if found is None:
            raise
        watch.tell(found[0])
        os._exit(1)  # to shut the group down would be to wait for the dead one
    finally:
        watch.stop()


def _look_again(watch: Watch) -> tuple[str, bool] | None:
    """What became of a dead process, which may take a moment to be seen."""
    for _ in range(10):
        found = watch.dead()
        if found is not None or watch.world == 1:
            return found
        time.sleep(_LOOK)
    return None
