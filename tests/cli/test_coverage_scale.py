"""Who counts which row cannot be told from the artefact: processes, shards, Ray, merges."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from vtrim.artifacts import Run, read_json
from vtrim.cli.coverage_shards import pick_shard
from vtrim.errors import OptionError
from vtrim.trimming.coverage import Coverage


@pytest.fixture
def counting(corpus: list[Path], inputs: Path) -> list[object]:
    """The arguments that count the whole corpus, the last file as generated text too."""
    tokenizer = ["--tokenizer", inputs / "tok_words", "--skip-bad-rows"]
    return [*corpus, *tokenizer, "--generated", corpus[1]]


@pytest.fixture
def whole(cover: Callable, counting: list[object], tmp_path: Path) -> Run:
    """The run of one process."""
    outcome = cover(tmp_path / "whole", *counting)
    assert outcome.code == 0, outcome.err
    return Run(tmp_path / "whole")


def test_the_corpus_holds_all_that_counting_has_to_tell_apart(whole: Run) -> None:
    counted = Coverage.load(whole.coverage)
    assert counted.rows_skipped["bad JSON"] == 5
    assert counted.rows_skipped["unknown role"] == 5
    assert set(counted.by_source or {}) == {"", "[maths]", "code", "talk"}
    assert set(counted.rows_by_kind) == {"messages", "alpaca"}
    assert counted.generated_rows > 100
    assert counted.sample.size > 10
    assert counted.sample.times.max() > 1


@pytest.mark.parametrize("count", [2, 3, 7])
def test_shards_in_any_order_make_the_bytes_of_one_process(
    cover: Callable, counting: list[object], whole: Run, tmp_path: Path, count: int
) -> None:
    run = Run(tmp_path / "sharded")
    order = [*range(2, count + 1), 1]
    for number in order:
        outcome = cover(run.root, *counting, "--shard", f"{number}/{count}", "--json")
        assert outcome.json["shard"] == f"{number}/{count}"
        assert outcome.json["merged"] is (number == 1)
        assert run.coverage.exists() is (number == 1)
    assert run.coverage.read_bytes() == whole.coverage.read_bytes()
    assert outcome.json["artifact"] == str(run.coverage)
    assert run.read()["data"] == whole.read()["data"]
    assert run.read()["target"] == whole.read()["target"]
    assert read_json(run.token_texts) == read_json(whole.token_texts)
    assert f"all {count} shards are there" in outcome.err


@pytest.mark.slow
def test_processes_make_the_bytes_of_one_process(
    cover: Callable, counting: list[object], whole: Run, tmp_path: Path
) -> None:
    found = cover(tmp_path / "two", *counting, "--processes", 2, "--json")
    assert found.json["processes"] == 2
    assert (tmp_path / "two" / "coverage.npz").read_bytes() == whole.coverage.read_bytes()
    assert "bad JSON: 5 (" in found.err
    shard = cover(tmp_path / "mixed", *counting, "--shard", "1/2", "--processes", 2)
    assert shard.code == 0, shard.err
    cover(tmp_path / "mixed", *counting, "--shard", "2/2")
    assert (tmp_path / "mixed" / "coverage.npz").read_bytes() == whole.coverage.read_bytes()


@pytest.mark.slow
def test_ray_makes_the_bytes_of_one_process_and_keeps_stdout_clean(
    counting: list[object], whole: Run, tmp_path: Path
) -> None:
    pytest.importorskip("ray", reason="ray is not installed (pip install 'vtrim[ray]')")
    done = subprocess.run(
        [sys.executable, "-m", "vtrim", "coverage", *map(str, counting), "--engine", "ray",
         "--processes", "2", "--run", str(tmp_path / "ray"), "--json"],
        capture_output=True, text=True, check=False, timeout=240,
        env={**os.environ, "RAY_ADDRESS": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert (tmp_path / "ray" / "coverage.npz").read_bytes() == whole.coverage.read_bytes()
    assert "Traceback" not in done.stderr


def test_ray_that_is_not_installed_is_one_error_line(
    cover: Callable, counting: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    outcome = cover(tmp_path / "run", *counting, "--engine", "ray")
    assert "pip install 'vtrim[ray]'" in outcome.error


def test_a_ray_cluster_that_does_not_answer_is_one_error_line(
    cover: Callable, counting: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="ray is not installed (pip install 'vtrim[ray]')")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    error = cover(tmp_path / "run", *counting, "--engine", "ray").error
    assert f"ray at {address}" in error


@pytest.mark.slow
@pytest.mark.parametrize("files", [("chat",), ("function_calling", "ner")], ids="+".join)
def test_shards_of_real_data_make_the_bytes_of_one_process(
    cover: Callable, data: Path, tmp_path: Path, files: tuple[str, ...]
) -> None:
    named = [data / f"{name}_messages.jsonl" for name in files]
    counting = [*named, "--target", data / "model" / "stories260k"]
    cover(tmp_path / "whole", *counting)
    for number in (1, 2):
        cover(tmp_path / "sharded", *counting, "--shard", f"{number}/2")
    bytes_of = [(tmp_path / name / "coverage.npz").read_bytes() for name in ("whole", "sharded")]
    assert bytes_of[0] == bytes_of[1]


def test_a_shard_without_any_reply_is_counted_but_a_whole_without_any_is_refused(
    cover: Callable, inputs: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data.jsonl"
    reply = '{"messages": [{"role": "assistant", "content": "%s"}]}\n'
    data.write_text(reply % "cat" + reply % "")
    options = [data, "--tokenizer", inputs / "tok_words", "--shard"]
    assert cover(tmp_path / "run", *options, "2/2", "--json").json["distinct"] == 1
    assert cover(tmp_path / "run", *options, "1/2", "--json").json["tokens"] == 3
    data.write_text(reply % "" + reply % "")
    cover(tmp_path / "other", *options, "2/2")
    assert "no assistant tokens" in cover(tmp_path / "other", *options, "1/2").error
    assert not (tmp_path / "other" / "coverage.npz").exists()


def test_shards_of_other_data_or_options_are_left_out_and_named(
    cover: Callable, counting: list[object], inputs: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert "in shard 1/2 alone" in cover(run, *counting, "--shard", "1/2").out
    outcome = cover(run, *counting, "--shard", "2/2", "--last-turn-only")
    assert "coverage.1-of-2.npz: counts of other data, or with other options" in outcome.err
    other = [inputs / "g11_bulk.jsonl", "--tokenizer", inputs / "tok_words", "--skip-bad-rows"]
    outcome = cover(run, *other, "--shard", "2/2")
    assert "coverage.1-of-2.npz: counts of other data, or with other options" in outcome.err
    (run / "coverage.1-of-2.npz").write_bytes(b"cut")
    outcome = cover(run, *counting, "--shard", "2/2")
    assert outcome.code == 0
    assert "It is left out" in outcome.err
    assert not (run / "coverage.npz").exists()


def test_a_launchers_rank_picks_the_shard(
    cover: Callable, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = [inputs / "g11_bulk.jsonl", "--tokenizer", inputs / "tok_words", "--json"]
    monkeypatch.setenv("WORLD_SIZE", "3")
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        outcome = cover(tmp_path / "run", *counting)
        assert outcome.json["shard"] == f"{rank + 1}/3"
        assert "RANK and WORLD_SIZE" in outcome.err
    assert (outcome.json["merged"], outcome.json["tokens"]) == (True, 8751)
    alone = cover(tmp_path / "alone", *counting, "--shard", "1/1").json
    assert (alone["tokens"], "shard" in alone) == (8751, False)


@pytest.mark.slow
def test_ranks_that_end_at_once_leave_one_whole_artefact(
    counting: list[object], whole: Run, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "vtrim", "coverage", *map(str, counting)]
    command += ["--run", str(tmp_path / "run"), "--json"]
    ranks = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "3", "OMP_NUM_THREADS": "1"},
        )
        for rank in range(3)
    ]  # fmt: skip
    ended = [rank.communicate(timeout=240) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0], ended
    assert any('"merged": true' in out for out, _ in ended)
    run = Run(tmp_path / "run")
    assert run.coverage.read_bytes() == whole.coverage.read_bytes()
    assert run.read()["data"] == whole.read()["data"]
    assert not list(run.root.glob(".*"))


def test_an_error_in_any_shard_of_a_launcher_is_shown(
    cover: Callable, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    outcome = cover(
        tmp_path, inputs / "g02_cut_last.jsonl", "--tokenizer", inputs / "tok_words", "--json"
    )
    assert "g02_cut_last.jsonl:3" in outcome.error


@pytest.mark.parametrize(
    ("settings", "shard"),
    [
        ({}, None),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "1", "WORLD_SIZE": "4"}, "2/4"),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}, "4/4"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, "1/2"),
    ],
)
def test_launchers_name_rank_and_size_in_their_own_ways(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], shard: str | None
) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    found = pick_shard(None)
    assert (None if found is None else str(found)) == shard


@pytest.mark.parametrize(
    ("rank", "size"), [("4", "4"), ("x", "4"), ("0", "four"), ("-1", "4"), (None, "4")]
)
def test_a_launcher_that_makes_no_sense_is_refused_with_its_variables(
    monkeypatch: pytest.MonkeyPatch, rank: str | None, size: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.delenv("RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    with pytest.raises(OptionError, match=rf"WORLD_SIZE={size}.*--shard"):
        pick_shard(None)


def _alive(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


def _workers(pid: int) -> list[int]:
    """The processes that count for a command."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == pid and b"spawn_main" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _hear_ctrl_c() -> None:
    """A shell starts background jobs deaf to Ctrl-C, and their children inherit it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["kill a worker", "Ctrl-C", "kill the parent"])
def test_no_process_outlives_a_command_that_is_stopped(
    counting: list[object], tmp_path: Path, stop: str
) -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc to see the processes")
    process = subprocess.Popen(
        [sys.executable, "-m", "vtrim", "coverage", *map(str, counting), "--processes", "2",
         "--run", str(tmp_path / "run"), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=_hear_ctrl_c,
    )  # fmt: skip
    workers: list[int] = []
    deadline = time.monotonic() + 120
    while len(workers) < 2 and process.poll() is None and time.monotonic() < deadline:
        workers = _workers(process.pid)
        time.sleep(0.01)
    assert len(workers) == 2
    if stop == "kill a worker":
        os.kill(workers[0], signal.SIGKILL)
    elif stop == "Ctrl-C":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.kill()
    out, err = process.communicate(timeout=120)
    assert out == ""
    while any(map(_alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_alive, workers))
    assert not (tmp_path / "run" / "coverage.npz").exists()
    if stop == "kill a worker":
        assert process.returncode == 2
        assert err.splitlines()[-1].startswith("error: a counting process ended early")
        assert "SIGKILL" in err
    elif stop == "Ctrl-C":
        assert (process.returncode, "Traceback" in err) == (130, False), err


@pytest.fixture
def parts(cover: Callable, inputs: Path, tmp_path: Path) -> list[Path]:
    """Run folders of three files, counted for one target."""
    names = ["g11_bulk.jsonl", "g02_plain.jsonl.gz", "g05_parts.jsonl"]
    for name in names:
        cover(tmp_path / name, inputs / name, "--target", inputs / "target_chain")
    return [tmp_path / name for name in names]


def test_merged_artefacts_are_those_of_one_run_in_any_order(
    cover: Callable, inputs: Path, parts: list[Path], tmp_path: Path
) -> None:
    files = [inputs / part.name for part in parts]
    tokens = cover(tmp_path / "whole", *files, "--target", inputs / "target_chain", "--json").json
    whole = Run(tmp_path / "whole")
    for i, order in enumerate(permutations(parts)):
        run = Run(tmp_path / f"merged{i}")
        named = [order[0] / "coverage.npz", *order[1:]]  # artefacts and run folders alike
        merged = cover(run.root, "--merge", *named, "--json").json
        assert merged["tokens"] == tokens["tokens"]
        assert run.coverage.read_bytes() == whole.coverage.read_bytes()
        assert run.target_config.read_text() == whole.target_config.read_text()
        assert run.read()["target"] == whole.read()["target"]
        assert {file["path"] for file in run.read()["data"]["files"]} == set(map(str, files))
        assert read_json(run.token_texts) == read_json(whole.token_texts)


def test_shards_that_were_moved_merge_with_what_stands_beside_them(
    cover: Callable, counting: list[object], whole: Run, tmp_path: Path
) -> None:
    for number in (1, 2):
        cover(tmp_path / str(number), *counting, "--shard", f"{number}/2")
    named = [tmp_path / str(n) / f"coverage.{n}-of-2.npz" for n in (1, 2)]
    cover(tmp_path / "merged", "--merge", *named)
    merged = Run(tmp_path / "merged")
    assert merged.coverage.read_bytes() == whole.coverage.read_bytes()
    assert merged.read()["data"] == whole.read()["data"]


def test_a_missing_shard_is_a_warning(
    cover: Callable, counting: list[object], corpus: list[Path], tmp_path: Path
) -> None:
    cover(tmp_path / "a", *counting, "--shard", "1/3")
    cover(tmp_path / "a", *counting, "--shard", "3/3")
    shards = sorted((tmp_path / "a").glob("*.npz"))
    outcome = cover(tmp_path / "merged", "--merge", *shards, "--json")
    assert outcome.json["rows_used"] > 100
    for file in corpus:
        assert f"warning: shard 2/3 of {file} is missing" in outcome.err


def test_artefacts_without_a_run_beside_them_merge_for_search_alone(
    cover: Callable, parts: list[Path], tmp_path: Path
) -> None:
    alone = tmp_path / "alone.npz"
    alone.write_bytes((parts[0] / "coverage.npz").read_bytes())
    outcome = cover(tmp_path / "merged", "--merge", alone, parts[1])
    assert "alone.npz: nothing beside it tells its data" in outcome.err
    assert Run(tmp_path / "merged").read()["data"]["files"] == []
    outcome = cover(tmp_path / "nothing", "--merge", alone, "--json")
    target = Run(tmp_path / "nothing").read()["target"]
    assert (target["name"], target["vocab_size"], target["stop_ids"]) == (None, 64, [51])


def test_counts_that_do_not_add_up_are_refused(
    cover: Callable, inputs: Path, parts: list[Path], tmp_path: Path
) -> None:
    merged = tmp_path / "merged"
    other = tmp_path / "other"
    cover(other, inputs / "g07_think_two_turns.jsonl", "--tokenizer", inputs / "tok_words_think")
    assert "tokenizer_fingerprint differs" in cover(merged, "--merge", parts[0], other).error
    assert "count twice" in cover(merged, "--merge", parts[0], parts[0]).error
    cover(other, inputs / "g08_long_rows.jsonl", "--target", inputs / "target_chain",
          "--max-length", 12)  # fmt: skip
    assert "max_length differs: None in" in cover(merged, "--merge", parts[0], other).error
    assert "no such file" in cover(merged, "--merge", parts[0], tmp_path / "nowhere.npz").error
    assert "not a vtrim coverage" in cover(merged, "--merge", inputs / "g11_bulk.jsonl").error
    assert not merged.exists()


def test_one_row_in_ten_thousand_shards_is_counted_once(
    cover: Callable, inputs: Path, tmp_path: Path
) -> None:
    found = []
    for shard in ("1/10000", "300/10000", "301/10000"):
        outcome = cover(
            tmp_path, inputs / "g11_bulk.jsonl", "--tokenizer", inputs / "tok_words", "--shard",
            shard, "--json",
        )  # fmt: skip
        found.append(outcome.json["rows_used"])
    assert found == [1, 1, 0]
    sizes = [Coverage.load(path).counts.sum() for path in sorted(tmp_path.glob("*.npz"))]
    assert np.count_nonzero(sizes) == 2


def _peak(run: Path, data: Path, target: Path) -> int:
    """Peak memory [kB] of counting a file in a process of its own."""
    script = (
        "import sys; from vtrim.cli.main import main\n"
        "try: main()\n"
        "finally: print(*open('/proc/self/status'), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "-q", "coverage", str(data), "--target", str(target),
         "--encoder", "tokenizers", "--processes", "1", "--run", str(run), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(done.stderr.partition("VmHWM:")[2].split()[0])


@pytest.mark.slow
def test_a_file_ten_times_as_long_adds_only_what_the_buffers_hold(
    data: Path, tmp_path: Path
) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc to see the memory")
    target = data / "model" / "stories260k"
    text = (data / "chat_messages.jsonl").read_text(encoding="utf-8")
    sizes = []
    for times in (1, 10):
        path = tmp_path / f"{times}.jsonl"
        path.write_text(text * times, encoding="utf-8")
        sizes.append(_peak(tmp_path / "run", path, target))
    assert sizes[1] - sizes[0] < 60_000, sizes  # the file is 116 MB longer
