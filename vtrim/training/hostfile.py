"""DeepSpeed hostfiles: one line a machine, ``HOST slots=N``."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from pathlib import Path

from vtrim.errors import InputError, OptionError

_LINE = re.compile(r"(\S+)\s+slots=(\d+)")
_SHOWN = 60  # characters of a wrong line that its error shows
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Hosts:
    """The machines of a run. slots: machine -> its processes, in the file's order."""

    path: Path
    slots: dict[str, int]

    @property
    def processes(self) -> int:
        """Processes on all machines together."""
        return sum(self.slots.values())

    @property
    def only_here(self) -> bool:
        """Whether the one machine of the file is this one."""
        return len(self.slots) == 1 and is_this_machine(next(iter(self.slots)))


def is_this_machine(name: str) -> bool:
    """Whether ``name`` is the machine that this process runs on."""
    return name in (*_THIS_MACHINE, socket.gethostname(), socket.getfqdn())


def read_hostfile(path: Path, typed: int | None = None) -> Hosts:
    """The machines of a hostfile; ``typed``: the number of processes asked for, if any.

    Raises:
        InputError: the file cannot be read, or a line in it is no machine; names the line.
        OptionError: it contradicts ``typed``, or names this machine so that others cannot reach it.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"--hostfile {path}: cannot be read ({reason}).") from error
    slots: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        text = line.split("#")[0].strip()
        if not text:
            continue
        found = _LINE.fullmatch(text)
        if found is None or int(found[2]) < 1:
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
            raise InputError(
                f"{path}:{number}: '{shown}': write the machine's name and its processes, from 1: "
                "HOST slots=N."
            )
        if found[1] in slots:
            raise InputError(f"{path}:{number}: the machine {found[1]} stands there twice.")
        slots[found[1]] = int(found[2])
    if not slots:
        raise InputError(f"--hostfile {path}: no machine in it. One line each: HOST slots=N.")
    hosts = Hosts(path, slots)
    _check(hosts, typed)
    return hosts


def _check(hosts: Hosts, typed: int | None) -> None:
    if typed is not None and typed != hosts.processes:
        raise OptionError(
            f"--num-gpus {typed}: the machines of {hosts.path} have {hosts.processes} slots "
            "together; leave --num-gpus out, or make the two agree."
        )
    if len(hosts.slots) > 1:
        for name in set(hosts.slots) & set(_THIS_MACHINE):
            raise OptionError(
                f"{hosts.path}: the other machines cannot reach '{name}'; write this machine's "
                "name or address."
            )
