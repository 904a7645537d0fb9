"""Parts counted by several processes of this machine."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing import connection, get_context, resource_tracker
from typing import TYPE_CHECKING, Any, cast

from vtrim.errors import InputError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from vtrim.cli.coverage_part import Part, PartSpec, Tell

_TELL_EVERY = 0.2  # seconds
_CONTEXT = get_context("spawn")  # a fork would copy the threads' locks of loaded libraries


def count_in_processes(specs: Sequence[PartSpec], processes: int, tell: Tell) -> Iterator[Part]:
    """Each part as it is done, in no order. The processes end with the iterator.

    Raises:
        InputError: a process died. Whatever ``count_part`` raised in one of them.
    """
    waiting = list(reversed(specs))
    workers: dict[Connection, SpawnProcess] = {}
    try:
        for _ in range(min(processes, len(specs))):
            pipe, worker = _start()
            workers[pipe] = worker
            pipe.send(waiting.pop())
        while workers:
            for ready in connection.wait(list(workers)):
                yield from _hear(cast("Connection", ready), workers, waiting, tell)
    finally:
        for worker in workers.values():
            worker.kill()  # nothing is lost: a worker holds only counts
        for worker in workers.values():
            worker.join()


def _start() -> tuple[Connection, SpawnProcess]:
    """A new worker, and the pipe to it. Ctrl-C is for this process: workers never see it."""
    here, there = _CONTEXT.Pipe()
    worker = _CONTEXT.Process(target=_work, args=(there,), daemon=True)
    resource_tracker.ensure_running()  # the first start would start it, which unblocks Ctrl-C
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        worker.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    there.close()
    return here, worker


def _hear(
    pipe: Connection, workers: dict[Connection, SpawnProcess], waiting: list[PartSpec], tell: Tell
) -> Iterator[Part]:
    """Takes one message of a worker; gives it the next part when it is done with one."""
    try:
        kind, value = pipe.recv()
    except (EOFError, ConnectionError):
        worker = workers[pipe]
        worker.join()
        raise InputError(
            f"a counting process ended early ({_ending(worker.exitcode)}). "
            "Start again with fewer --processes if memory was short."
        ) from None
    if kind == "read":
        tell(*value)
    elif kind == "error":
        raise value
    elif kind == "bug":
        raise RuntimeError(f"in a counting process:\n{value}")
    else:
        if waiting:
            pipe.send(waiting.pop())
        else:
            pipe.send(None)
            workers.pop(pipe).join()
        yield value


def _ending(code: int | None) -> str:
    """How a process ended, in words."""
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _work(pipe: Connection) -> None:
    """Counts part after part until there is none."""
    from vtrim.chat.feed import FastPathDiffers
    from vtrim.cli.coverage_part import count_part
    from vtrim.errors import VtrimError

    try:
        while (spec := pipe.recv()) is not None:
            pipe.send(("part", count_part(spec, tell=_teller(pipe))))
    except (VtrimError, FastPathDiffers) as error:
        pipe.send(("error", error))
    except (BrokenPipeError, EOFError, ConnectionError):
        os._exit(1)  # the parent is gone
    except Exception:  # noqa: BLE001 - shown by the parent, with its traceback
        pipe.send(("bug", traceback.format_exc()))


def _teller(pipe: Connection) -> Tell:
    """Sends what was read, a few times a second."""
    size = rows = 0
    last = time.monotonic()

    def tell(more: int, new: int) -> None:
        nonlocal size, rows, last
        size, rows = size + more, rows + new
        if time.monotonic() - last > _TELL_EVERY:
            pipe.send(("read", (size, rows)))
            size, rows, last = 0, 0, time.monotonic()

    return tell


def available_cpus() -> int:
    """CPUs this process may use."""
    affinity: Any = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
