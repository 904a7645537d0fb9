"""What a model's code cannot do in the sandbox: each way out is tried."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from vtrim.errors import InputError
from vtrim.evaluation.tasks import sandbox, sandbox_child
from vtrim.evaluation.tasks.sandbox import Limits, Outcome, check_sandbox, run_program

SHORT = Limits(cpu_seconds=1, wall_seconds=2.0)
REFUSED = "PermissionError"


def run(program: str, limits: Limits = SHORT) -> Outcome:
    return run_program(program, limits)


def test_a_program_that_runs_to_its_end_passes() -> None:
    assert run_program("import math\nassert math.isqrt(10) == 3") == Outcome(True, "passed")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("assert 1 == 2, 'not so'", "AssertionError: not so"),
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("def (", "SyntaxError"),
        ("def f(): f()\nf()", "RecursionError"),
        ("input()", "EOFError"),
    ],
)
def test_a_program_that_fails_says_why(program: str, reason: str) -> None:
    outcome = run(program)
    assert not outcome.passed
    assert outcome.reason.startswith(reason)


@pytest.mark.parametrize(
    "program",
    [
        "import os; os._exit(0)",
        "import sys; sys.exit(0)",
        "raise SystemExit",
        "import os; os.kill(os.getpid(), 9)",
        "import ctypes; ctypes.string_at(0)",
        "import ctypes; ctypes.CDLL(None).exit(0)",
        "print('passed'); import os; os._exit(0)",
        "import os\nfor fd in (3, 4, 5):\n  try: os.write(fd, b'passed')\n  except OSError: pass\n"
        "os._exit(0)",
    ],
)
def test_leaving_before_the_tests_is_no_pass(program: str) -> None:
    assert not run(f"{program}\nassert False").passed


@pytest.mark.parametrize(
    "patch",
    [
        "import os; os.write = os._exit = lambda *a: None",
        "import builtins; builtins.exec = builtins.compile = lambda *a: None",
        "import builtins; builtins.AssertionError = builtins.BaseException = type('E', (), {})",
        "import sys; sys.excepthook = lambda *a: None; sys.modules.clear()",
        "import atexit, os; atexit.register(os._exit, 0)",
        "import sys; sys.settrace(lambda *a: None); sys.stdout = sys.stderr = None",
    ],
)
def test_patching_the_interpreter_does_not_turn_a_failure_into_a_pass(patch: str) -> None:
    assert not run(f"{patch}\nassert 1 == 2").passed


def test_a_loop_is_stopped_when_its_processor_time_is_used() -> None:
    outcome = run("while True: pass", Limits(cpu_seconds=1, wall_seconds=60.0))
    assert outcome == Outcome(False, "stopped: out of processor time")


@pytest.mark.parametrize(
    "program",
    [
        "import time; time.sleep(60)",
        "import signal\nfor s in (14, 15, 24): signal.signal(s, signal.SIG_IGN)\nwhile True: pass",
        "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
        "while True: print('x' * 100_000)",
    ],
)
def test_what_does_not_end_is_stopped(program: str) -> None:
    assert run(program, Limits(cpu_seconds=1, wall_seconds=1.5)).reason.startswith("stopped")


@pytest.mark.parametrize(
    "program",
    [
        "x = [0] * 10**9",
        "x = 'x' * 10**10",
        "x = bytearray(2**31)",
        "import mmap; mmap.mmap(-1, 2**31)",
    ],
)
def test_memory_is_limited(program: str) -> None:
    outcome = run(program)
    assert not outcome.passed
    assert outcome.reason.startswith(("MemoryError", "OSError"))


@pytest.mark.parametrize(
    "program",
    [
        "import os; os.fork()",
        "import os\nwhile True: os.fork()",
        "import os; os.posix_spawn('/bin/true', ['true'], {})",
        "import os; os.execv('/bin/true', ['true'])",
        "import subprocess; subprocess.run(['true'])",
        "import os; assert os.system('true') == 0; raise PermissionError",
        "import multiprocessing as m; m.Process(target=print).start()",
    ],
)
def test_no_process_is_started(program: str) -> None:
    outcome = run(program)
    assert not outcome.passed
    assert "Error" in outcome.reason


def test_no_thread_is_started() -> None:
    outcome = run("import threading; threading.Thread(target=print).start()")
    assert outcome.reason == "RuntimeError: can't start new thread"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim.txt"
    path.write_text("whole")
    path.chmod(0o666)
    return path


@pytest.mark.parametrize(
    "call",
    [
        "open({p!r}, 'w')",
        "open({p!r}, 'a')",
        "open({p!r}, 'r+')",
        "os.open({p!r}, os.O_RDONLY | os.O_TRUNC)",
        "os.truncate({p!r}, 0)",
        "os.remove({p!r})",
        "os.rename({p!r}, {p!r} + '2')",
        "os.symlink('/', {p!r} + '2')",
        "os.link({p!r}, {p!r} + '2')",
        "os.mkdir({p!r} + '2')",
        "os.chmod({p!r}, 0)",
        "os.utime({p!r})",
        "os.chdir('/')",
        "open('in_its_own_folder', 'x')",
        "shutil.rmtree(os.path.dirname({p!r}))",
        "pathlib.Path({p!r}).write_text('')",
    ],
)
def test_nothing_is_written_anywhere(call: str, victim: Path) -> None:
    program = f"import os, pathlib, shutil\n{call.format(p=str(victim))}"
    assert run(program).reason.startswith(REFUSED)
    assert victim.read_text() == "whole"
    assert [path.name for path in victim.parent.iterdir()] == ["victim.txt"]


@pytest.fixture
def server() -> Iterator[tuple[int, list[str]]]:
    """A server on this machine, and what was asked of it."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

    web = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=web.serve_forever)
    thread.start()
    yield web.server_address[1], asked
    web.shutdown()
    thread.join()
    web.server_close()


@pytest.mark.parametrize(
    "program",
    [
        "import urllib.request as u; u.urlopen('http://127.0.0.1:{port}/')",
        "import socket; socket.create_connection(('127.0.0.1', {port}))",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        "import socket; socket.socket(socket.AF_UNIX)",
        "import socket; socket.socketpair()",
        "import ctypes; l = ctypes.CDLL(None, use_errno=True)\n"
        "if l.socket(2, 1, 0) < 0: raise OSError(ctypes.get_errno(), 'socket')",
    ],
)
def test_no_socket_is_opened(program: str, server: tuple[int, list[str]]) -> None:
    port, asked = server
    reason = run(program.format(port=port)).reason
    assert "Operation not permitted" in reason or reason.startswith(REFUSED)
    assert asked == []


@pytest.mark.parametrize(
    "call",
    [
        "os.kill({pid}, 9)",
        "os.killpg(os.getpgid({pid}), 9)",
        "signal.pidfd_send_signal(os.pidfd_open({pid}), 9)",
        "open('/proc/{pid}/mem', 'r+b')",
        "resource.prlimit({pid}, resource.RLIMIT_CPU, (0, 0))",
        "os.setpriority(os.PRIO_PROCESS, {pid}, 19)",
        "fcntl.fcntl(0, fcntl.F_SETOWN, {pid})",
        "os.ptrace",
    ],
)
def test_other_processes_are_out_of_reach(call: str) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        outcome = run(f"import fcntl, os, resource, signal\n{call.format(pid=other.pid)}")
        assert not outcome.passed
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_its_parent_lives() -> None:
    assert run("import os; os.kill(os.getppid(), 9)").reason.startswith(REFUSED)


@pytest.mark.parametrize(
    "call",
    [
        "prctl(22, 0, 0, 0, 0)",
        "syscall(317, 1, 0, 0)",
        "setrlimit(0, ctypes.byref((ctypes.c_ulong * 2)(9, 9)))",
        "unshare(0x10000000)",
        "syscall(425, 1, 0)",
        "syscall(0x40000000 + 41, 2, 1, 0)",
    ],
)
def test_the_lock_is_not_taken_off(call: str) -> None:
    program = f"import ctypes\nif ctypes.CDLL(None).{call} != -1: raise SystemExit('off')"
    assert run(program).passed  # every call was refused


def test_its_environment_holds_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "secret")
    program = "import os, sys\nassert 'A_TOKEN' not in os.environ\nassert os.listdir('.') == []"
    assert run(program) == Outcome(True, "passed")


def test_a_flood_on_every_descriptor_is_cut_short() -> None:
    program = (
        "import os\nfor fd in range(3, 32):\n  try:\n"
        "    while True: os.write(fd, b'x' * 65536)\n  except OSError: pass"
    )
    outcome = run(program)
    assert not outcome.passed
    assert len(outcome.reason) <= 200


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = tmp_path / "starter.py"
    script.write_text(
        "import os, threading, time\n"
        "from vtrim.evaluation.tasks.sandbox import Limits, run_program\n"
        "threading.Thread(target=run_program, daemon=True, args=(\n"
        "    'import time; time.sleep(60)', Limits(cpu_seconds=9, wall_seconds=60))).start()\n"
        "children = f'/proc/{os.getpid()}/task'\n"
        "while True:\n"
        "    found = [open(f'{children}/{t}/children').read() for t in os.listdir(children)]\n"
        "    if any(found):\n"
        "        time.sleep(1); print(''.join(found), flush=True); os.kill(os.getpid(), 9)\n"
    )
    started = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, check=False)
    assert started.returncode == -signal.SIGKILL
    for pid in map(int, started.stdout.split()):
        for _ in range(100):
            if not _is_running(pid):
                break
            threading.Event().wait(0.05)
        assert not _is_running(pid)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_where_the_lock_does_not_work_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    check_sandbox.cache_clear()
    monkeypatch.setattr(sandbox, "run_program", lambda *_: Outcome(False, "OSError: no seccomp"))
    with pytest.raises(InputError, match=r"OSError: no seccomp.*needs Linux"):
        check_sandbox()
    monkeypatch.setattr(sandbox, "run_program", lambda *_: Outcome(True, "passed"))
    with pytest.raises(InputError, match="was not refused"):
        check_sandbox()
    check_sandbox.cache_clear()


def test_an_unknown_machine_has_no_filter() -> None:
    with pytest.raises(OSError, match="riscv64"):
        sandbox_child.filter_code("riscv64")


@pytest.mark.parametrize("machine", sorted(sandbox_child.MACHINES))
def test_a_filter_allows_what_it_lists_and_nothing_else(machine: str) -> None:
    column, arch = sandbox_child.MACHINES[machine]
    listed = {numbers[column] for numbers in sandbox_child.CALLS.values()} - {None}
    opens = {places[column] for places in sandbox_child.OPENS.values() if places[column][0]}
    code = sandbox_child.filter_code(machine)
    for number in range(600):
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC):
            asked = dict.fromkeys(range(6), flags)
            reads = any(number == call and flags == 0 for call, _ in opens)
            assert _allows(code, arch, number, asked) == (number in listed or reads)
    assert not _allows(code, arch ^ 1, 0, {})
    assert not _allows(code, arch, 0x40000000, {})


def _allows(
    code: list[tuple[int, int, int, int]], arch: int, number: int, arguments: dict[int, int]
) -> bool:
    """What a BPF program says of a call: a second machine for the four instructions it uses."""
    memory = {0: number, 4: arch} | {16 + 8 * i: value for i, value in arguments.items()}
    value, at = 0, 0
    while True:
        instruction, if_true, if_false, constant = code[at]
        at += 1
        if instruction == 0x06:
            return constant == 0x7FFF0000
        if instruction == 0x20:
            value = ctypes.c_uint32(memory[constant]).value
        else:
            holds = value == constant if instruction == 0x15 else bool(value & constant)
            at += if_true if holds else if_false
