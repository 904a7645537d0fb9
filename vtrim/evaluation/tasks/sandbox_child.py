"""What runs inside the sandbox: locks its own process, then runs the program it reads.

Run as a script by ``vtrim.evaluation.tasks.sandbox`` in a fresh interpreter, so it imports nothing
of vtrim. It reads ``{"program", "memory", "seconds", "parent"}`` as one line of JSON from stdin.
When the program has run to its end it copies the rest of stdin, a secret, to stdout; else it says
there why it has not.

The kernel's seccomp filter lists the system calls that a program that only computes needs, and
refuses every other with EPERM: there is no call left that opens a socket, starts a process or a
thread, signals another process, or opens a file for writing. The filter cannot be taken off again.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import signal
import sys

# The calls that are allowed, by number on x86-64 and on arm64 (None: it has no such call).
CALLS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "stat": (4, None), "fstat": (5, 80),
    "lstat": (6, None), "lseek": (8, 62), "mmap": (9, 222), "mprotect": (10, 226),
    "munmap": (11, 215), "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "pread64": (17, 67), "readv": (19, 65), "writev": (20, 66),
    "access": (21, None), "sched_yield": (24, 124), "mremap": (25, 216), "madvise": (28, 233),
    "dup": (32, 23), "nanosleep": (35, 101), "getpid": (39, 172), "exit": (60, 93),
    "uname": (63, 160), "getcwd": (79, 17), "readlink": (89, None), "gettimeofday": (96, 169),
    "getrlimit": (97, 163), "getrusage": (98, 165), "sysinfo": (99, 179), "times": (100, 153),
    "getuid": (102, 174), "getgid": (104, 176), "geteuid": (107, 175), "getegid": (108, 177),
    "getppid": (110, 173), "sigaltstack": (131, 132), "gettid": (186, 178), "time": (201, None),
    "futex": (202, 98), "sched_getaffinity": (204, 123), "getdents64": (217, 61),
    "restart_syscall": (219, 128), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "exit_group": (231, 94), "newfstatat": (262, 79),
    "readlinkat": (267, 78), "faccessat": (269, 48), "getrandom": (318, 278), "statx": (332, 291),
    "faccessat2": (439, 439),
}  # fmt: skip
# Calls that are allowed with some flags only: the number, and which argument holds the flags.
OPENS: dict[str, tuple[tuple[int | None, int], tuple[int | None, int]]] = {
    "open": ((2, 1), (None, 1)),
    "openat": ((257, 2), (56, 2)),
}
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column, AUDIT_ARCH_*
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06  # BPF instructions on 32-bit words
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO | EPERM
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_NO_NEW_PRIVILEGES, _SECCOMP, _DEATH_SIGNAL = 38, 22, 1  # prctl options


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("if_true", ctypes.c_ubyte),
        ("if_false", ctypes.c_ubyte),
        ("value", ctypes.c_uint),
    )


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.POINTER(_Instruction)))


def filter_code(machine: str) -> list[tuple[int, int, int, int]]:
    """The seccomp filter of a machine, as BPF instructions (code, if true, if false, value).

    Raises:
        OSError: the machine's call numbers are not known here.
    """
    if sys.platform != "linux" or machine not in MACHINES:
        raise OSError(f"no filter of system calls for {sys.platform} on {machine}")
    column, arch = MACHINES[machine]
    code = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _REFUSE)]
    code += [(_LOAD, 0, 0, _NUMBER)]
    for numbers in CALLS.values():
        number = numbers[column]
        if number is not None:
            code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    for places in OPENS.values():
        number, argument = places[column]
        if number is not None:
            code += [
                (_EQUAL, 0, 4, number),
                (_LOAD, 0, 0, _ARGUMENTS + 8 * argument),
                (_ANY_BIT, 0, 1, WRITING),
                (_RETURN, 0, 0, _REFUSE),
                (_RETURN, 0, 0, _ALLOW),
            ]
    return [*code, (_RETURN, 0, 0, _REFUSE)]


def lock(memory: int, seconds: int) -> None:
    """Takes from this process all but computing and reading. memory: [bytes] of address space.

    Raises:
        OSError: the machine or its kernel cannot.
    """
    code = filter_code(platform.machine())
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 32),
        (resource.RLIMIT_AS, memory),
    ):
        resource.setrlimit(what, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Filter(len(code), (_Instruction * len(code))(*(_Instruction(*one) for one in code)))
    asked = (
        (_DEATH_SIGNAL, signal.SIGKILL, 0),
        (_NO_NEW_PRIVILEGES, 1, 0),
        (_SECCOMP, 2, ctypes.byref(program)),
    )
    for option, value, pointer in asked:
        if libc.prctl(option, value, pointer, 0, 0):
            error = ctypes.get_errno()
            raise OSError(error, f"prctl {option}: {os.strerror(error)}")


def main() -> None:
    """Runs the program on stdin; the verdict goes where stdout was, what it prints nowhere."""
    source, verdict = os.dup(0), os.dup(1)
    with open(source, "rb", buffering=0, closefd=False) as unbuffered:
        asked = json.loads(unbuffered.readline())
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
    # Bound before the program runs: what it puts in their places is not what is called.
    read, write, leave = os.read, os.write, os._exit
    try:
        lock(asked["memory"], asked["seconds"])
        if os.getppid() != asked["parent"]:  # it ended before the lock could tie this one to it
            leave(1)
        exec(compile(asked["program"], "<reply>", "exec"), {"__name__": "__main__"})  # noqa: S102
    except BaseException as error:  # noqa: BLE001 - whatever the program raises is its failure
        write(verdict, f"{type(error).__name__}: {error}"[:200].encode(errors="replace"))
        leave(1)
    write(verdict, read(source, 64))
    leave(0)


if __name__ == "__main__":
    main()
