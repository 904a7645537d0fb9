"""How processes are started, and what is refused before any is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from vtrim.errors import InputError, OptionError
from vtrim.training.hostfile import read_hostfile
from vtrim.training.launch import Launch
from vtrim.training.watch import Peer, describe, how_it_ended


def _hosts(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "hosts"
    path.write_text(text)
    return path


def _after(command: list[str], option: str) -> str:
    return command[command.index(option) + 1]


def test_several_processes_on_this_machine_start_through_deepspeeds_launcher() -> None:
    command = Launch(processes=4, port=29511).command(["train-draft", "--num-gpus", "4"])
    assert command == [
        sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus", "4",
        "--master_port", "29511", "--log_level", "critical", "--module", "vtrim",
        "train-draft", "--num-gpus", "4",
    ]  # fmt: skip


def test_two_machines_start_through_the_hostfile_with_the_first_as_master(tmp_path: Path) -> None:
    path = _hosts(tmp_path, "# two nodes\nnode-a slots=8\nnode-b slots=8  # the other\n\n")
    hosts = read_hostfile(path)
    launch = Launch(processes=hosts.processes, hosts=hosts)
    assert launch.processes == 16
    assert launch.command(["train-draft"]) == [
        sys.executable, "-m", "deepspeed.launcher.runner", "--hostfile", str(path),
        "--master_addr", "node-a", "--master_port", "29500", "--log_level", "critical",
        "--module", "vtrim", "train-draft",
    ]  # fmt: skip
    typed = Launch(processes=16, hosts=hosts, address="10.0.0.7", port=4000).command([])
    assert _after(typed, "--master_addr") == "10.0.0.7"
    assert _after(typed, "--master_port") == "4000"


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", socket.gethostname()])
def test_a_hostfile_of_this_machine_alone_needs_no_ssh(tmp_path: Path, name: str) -> None:
    hosts = read_hostfile(_hosts(tmp_path, f"{name} slots=2\n"))
    command = Launch(processes=2, hosts=hosts).command([])
    assert "--no_ssh_check" in command
    assert _after(command, "--master_addr") == "127.0.0.1"


def test_one_other_machine_is_not_taken_for_this_one(tmp_path: Path) -> None:
    hosts = read_hostfile(_hosts(tmp_path, "node-a slots=2\n"))
    command = Launch(processes=2, hosts=hosts).command([])
    assert "--force_multi" in command
    assert "--no_ssh_check" not in command


@pytest.mark.parametrize(
    ("text", "typed", "words"),
    [
        ("", None, ["no machine", "slots=N"]),
        ("node-a\n", None, ["hosts:1", "node-a", "slots=N"]),
        ("node-a slots=0\n", None, ["hosts:1", "slots=0"]),
        ("node-a slots=2\nnode-b slots=x\n", None, ["hosts:2", "slots=x"]),
        ("node-a slots=2\nnode-a slots=2\n", None, ["hosts:2", "node-a", "twice"]),
        ("node-a slots=2\nnode-b slots=2\n", 2, ["--num-gpus 2", "4 slots"]),
        ("localhost slots=2\nnode-b slots=2\n", None, ["localhost", "name"]),
    ],
)
def test_a_hostfile_that_cannot_be_is_refused_with_its_line(
    tmp_path: Path, text: str, typed: int | None, words: list[str]
) -> None:
    with pytest.raises((InputError, OptionError)) as refused:
        read_hostfile(_hosts(tmp_path, text), typed)
    assert all(word in str(refused.value) for word in words), str(refused.value)


def test_a_hostfile_that_is_not_there_or_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_hostfile(tmp_path / "none")
    with pytest.raises(InputError, match="cannot be read"):
        read_hostfile(tmp_path)


def test_other_machines_without_pdsh_are_refused_with_what_to_install_or_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    hosts = read_hostfile(_hosts(tmp_path, "node-a slots=2\nnode-b slots=2\n"))
    with pytest.raises(OptionError, match=r"pdsh.*torchrun"):
        Launch(processes=4, hosts=hosts).check_programs()
    Launch(processes=4, hosts=hosts).check()  # planning starts nothing
    Launch(processes=4).check_programs()  # this machine alone needs neither


def test_a_master_address_without_a_hostfile_is_refused() -> None:
    with pytest.raises(OptionError, match="--master-addr"):
        Launch(processes=2, address="node-a").check()


def test_a_master_port_of_one_process_is_refused() -> None:
    with pytest.raises(OptionError, match="--master-port"):
        Launch(processes=1, port=29511).check()
    Launch(processes=2, port=29511).check()


def test_a_wrong_line_of_a_hostfile_is_shown_shortened(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"hosts:1: 'x{60}\.\.\.': write"):
        read_hostfile(_hosts(tmp_path, "x" * 5000))


def test_how_a_process_ended_is_read_before_its_parent_takes_note() -> None:
    assert how_it_ended(os.getpid()) is None
    killed = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert how_it_ended(killed.pid) is None
    killed.kill()
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)  # ended, and not yet taken note of
    assert how_it_ended(killed.pid) == -signal.SIGKILL
    killed.wait()
    code = how_it_ended(killed.pid)
    assert code is not None
    assert "died" in describe(Peer(1, "host", killed.pid), code, 2)
    ended = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert how_it_ended(ended.pid) == 3
    ended.wait()


def test_the_line_about_a_dead_process_names_it_and_the_signal() -> None:
    line = describe(Peer(3, "node-b", 77), -signal.SIGKILL, 8)
    assert line.startswith("process 3 of 8 (pid 77 on node-b) was killed by SIGKILL")
    assert "exit code 2" in describe(Peer(0, "a", 1), 2, 8)
