"""Trials that outlive a process: resume, cut journals, foreign files and other searches."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import optuna
import pytest
from sqlalchemy.exc import IntegrityError

from vtrim.errors import InputError, OptionError
from vtrim.shape import DraftShape
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.journal import open_storage, repair
from vtrim.trimming.objective import Objective
from vtrim.trimming.search import build_objective
from vtrim.trimming.settings import parse_settings
from vtrim.trimming.tpe import TrialLog, tpe_trials


@pytest.fixture(scope="module")
def objective(zipf_coverage: Callable[..., Coverage], llama_shape: DraftShape) -> Objective:
    return build_objective(zipf_coverage(1.3, 300_000), llama_shape, parse_settings())


def run(
    objective: Objective,
    location: str | Path | None,
    num_trials: int = 5,
    *,
    seed: int = 7,
    additional: bool = True,
) -> TrialLog:
    with open_storage(location) as storage:
        return tpe_trials(
            objective,
            num_trials=num_trials,
            seed=seed,
            storage=storage.backend,
            counts_fingerprint="sha256:counts",
            additional=additional,
        )


def sizes(log: TrialLog) -> list[int]:
    return [trial.point.k for trial in log.trials]


@pytest.mark.parametrize("name", ["trials.journal", "sqlite:///{}/trials.db"])
def test_a_second_run_goes_on_where_the_first_was_and_repeats_no_size(
    tmp_path: Path, objective: Objective, name: str
) -> None:
    location = name.format(tmp_path) if "://" in name else tmp_path / name
    first, second = run(objective, location), run(objective, location)
    assert (first.num_resumed, second.num_resumed) == (0, 5)
    assert sizes(second)[:5] == sizes(first)
    assert len(set(sizes(second))) == 10
    # nor does it matter in how many runs they were made
    assert second.trials == run(objective, None, 10).trials
    if "://" in str(location):
        with sqlite3.connect(tmp_path / "trials.db") as database:
            rows = database.execute("select param_value from trial_params").fetchall()
        database.close()
        assert sorted(row[0] for row in rows) == sorted(sizes(second))


def test_without_adding_the_trials_asked_for_are_the_first_ones(
    tmp_path: Path, objective: Objective
) -> None:
    path = tmp_path / "trials.journal"
    long = run(objective, path, 12, additional=False)
    written = path.read_bytes()
    again = run(objective, path, 12, additional=False)
    short = run(objective, path, 4, additional=False)
    assert again.trials == long.trials
    assert short.trials == long.trials[:4]
    assert path.read_bytes() == written


def test_searches_of_other_counts_settings_or_seeds_are_left_alone(
    tmp_path: Path,
    objective: Objective,
    zipf_coverage: Callable[..., Coverage],
    llama_shape: DraftShape,
) -> None:
    path = tmp_path / "trials.journal"
    first = run(objective, path)
    others = [
        build_objective(zipf_coverage(1.3, 300_000), llama_shape, parse_settings(**options))
        for options in ({"alpha": "0.5"}, {"cmin": "0.9"}, {"kmax": 40_000}, {"keep": [5]})
    ]
    for number, other in enumerate(others, 1):
        log = run(other, path)
        assert (log.num_resumed, log.num_other_studies, len(log.trials)) == (0, number, 5)
    assert run(objective, path, seed=8).num_resumed == 0
    with open_storage(path) as storage:
        log = tpe_trials(objective, num_trials=5, seed=7, storage=storage.backend)
    assert log.num_resumed == 0  # counts of another fingerprint
    final = run(objective, path)
    assert (final.num_resumed, final.num_other_studies) == (5, 6)
    assert sizes(final)[:5] == sizes(first)


def test_optuna_itself_reads_the_journal(tmp_path: Path, objective: Objective) -> None:
    path = tmp_path / "trials.journal"
    log = run(objective, path)
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    storage = optuna.storages.JournalStorage(backend)
    (summary,) = optuna.get_all_study_summaries(storage=storage)
    study = optuna.load_study(study_name=summary.study_name, storage=storage)
    assert [trial.params["k"] for trial in study.trials] == sizes(log)
    assert summary.study_name.startswith("vtrim utility ")
    assert summary.user_attrs["vtrim"]["alpha"] == "3/5"


def test_a_journal_cut_at_any_byte_of_a_record_loses_nothing_before_it(
    tmp_path: Path, objective: Objective
) -> None:
    whole = tmp_path / "whole.journal"
    expected = run(objective, None, 4)
    run(objective, whole, 3)
    lines = whole.read_bytes().splitlines(keepends=True)
    assert len(lines) == 2 + 3 * 4  # study and its attribute; trial, size, constraint, value
    path = tmp_path / "cut.journal"
    for dropped, kept_trials in ((0, 2), (4, 1)):  # the record of a trial's value
        before = b"".join(lines[: len(lines) - dropped - 1])
        last = lines[len(lines) - dropped - 1]
        for length in range(len(last) + 1):
            path.write_bytes(before + last[:length])
            finished = length >= len(last) - 1  # only the line's end is missing
            said = None
            with open_storage(path) as storage:
                said = storage.repaired
                log = tpe_trials(
                    objective,
                    num_trials=4,
                    seed=7,
                    storage=storage.backend,
                    counts_fingerprint="sha256:counts",
                )
            assert log.num_resumed == kept_trials + finished, length
            assert log.trials == expected.trials
            aside = tmp_path / "cut.journal.cut1"
            if 0 < length < len(last) - 1:
                assert said is not None
                assert "was cut" in said
                assert aside.read_bytes() == last[:length]
                aside.unlink()
            else:
                assert said is None
                assert not aside.exists()
            assert run(objective, path, 4, additional=False).num_resumed == 4


@pytest.mark.parametrize("line", range(8))
def test_a_journal_cut_in_any_record_goes_on(
    tmp_path: Path, objective: Objective, line: int
) -> None:
    path = tmp_path / "trials.journal"
    run(objective, path, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:line]) + lines[line][: len(lines[line]) // 2])
    assert run(objective, path, 4, additional=False).trials == run(objective, None, 4).trials


@pytest.mark.parametrize("part", [b"", b'{"op_co', b'{"op_code":4,"worker_id":"x"'])
def test_zeros_that_a_power_loss_left_at_the_end_count_as_cut(
    tmp_path: Path, objective: Objective, part: bytes
) -> None:
    path = tmp_path / "trials.journal"
    run(objective, path, 3)
    before = path.read_bytes()
    tail = part + bytes(512)
    path.write_bytes(before + tail)
    said = repair(path)
    assert said is not None
    assert "was cut" in said
    assert path.read_bytes() == before
    assert (tmp_path / "trials.journal.cut1").read_bytes() == tail
    assert run(objective, path, 4, additional=False).num_resumed == 3


def test_a_study_that_another_search_makes_at_the_same_time_is_shared(
    tmp_path: Path, objective: Objective
) -> None:
    class Late(optuna.storages.RDBStorage):
        def get_all_studies(self) -> list[optuna.study._frozen.FrozenStudy]:
            return []  # as it was before the other one wrote

    url = f"sqlite:///{tmp_path}/trials.db"
    first = run(objective, url, 3)
    storage = Late(url)
    log = tpe_trials(
        objective, num_trials=3, seed=7, storage=storage, counts_fingerprint="sha256:counts"
    )
    storage.engine.dispose()
    assert log.trials == first.trials


def test_what_a_database_refuses_later_is_said_in_one_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/trials.db"
    for error in (
        IntegrityError("insert", {}, Exception("UNIQUE constraint failed")),
        optuna.exceptions.DuplicatedStudyError("a study of that name"),
    ):
        with (
            pytest.raises(InputError, match=r"cannot be used \(.*Run one search at a time on it"),
            open_storage(url),
        ):
            raise error


def test_cut_parts_are_kept_beside_each_other(tmp_path: Path) -> None:
    path = tmp_path / "trials.journal"
    for number in (1, 2):
        path.write_bytes(b'{"op_code":0}\n{"op_co')
        assert repair(path) is not None
        assert (tmp_path / f"trials.journal.cut{number}").read_bytes() == b'{"op_co'
        assert path.read_bytes() == b'{"op_code":0}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello\n", r":1: not a record"),
        (b"hello", r":1: not a record"),
        (b'{"op_code":0}\n{"k": 5}\n', r":2: not a record"),
        (b'{"op_code":0}\nhello', r":2: not a record"),
        (b'{"op_code":0}\n{"op_co\n{"op_code":0}\n', r":2: not a record"),
        (b"SQLite format 3\0more\n", r"an SQLite database.*sqlite:///"),
        (b'{"op_code":5}\n', r"not a journal that this Optuna can read"),
        (b'{"op_code":99,"worker_id":"x"}\n', r"damaged, or written by another version"),
        (b"hello\0\0", r":1: not a record"),
    ],
)
def test_a_foreign_file_is_refused_and_left_as_it_is(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message), open_storage(path):
        pass
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_journal_in_use_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trials.journal"
    with (
        open_storage(path),
        pytest.raises(OptionError, match="another search is writing"),
        open_storage(path),
    ):
        pass


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("sqlite:////no/such/folder/x.db", "cannot be opened"),
        ("nonsense://x", "cannot be opened"),
    ],
)
def test_a_database_that_cannot_be_opened_is_refused(location: str, message: str) -> None:
    with pytest.raises(OptionError, match=message), open_storage(location):
        pass


def test_a_journal_in_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "no" / "x.journal"
    with pytest.raises(InputError, match="cannot be opened as a journal"), open_storage(path):
        pass


def test_a_trial_outside_the_range_is_refused(tmp_path: Path, objective: Objective) -> None:
    path = tmp_path / "trials.journal"
    run(objective, path, 2)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        if "param_value_internal" in record:
            record["param_value_internal"] = 60_000.0
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(InputError, match="has size 60000, outside"):
        run(objective, path)


KILLED = """
import json, sys, time
from pathlib import Path
import numpy as np
from vtrim.shape import DraftShape
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.journal import open_storage
from vtrim.trimming.search import build_objective
from vtrim.trimming.settings import parse_settings
from vtrim.trimming.tpe import tpe_trials
coverage = Coverage(counts=np.arange(200), heldout_counts=np.zeros(200, dtype=np.int64),
    target_vocab_size=200, tokenizer_length=200, tokenizer_fingerprint="t", data_fingerprint="d")
shape = DraftShape.from_target_config(json.loads(Path(sys.argv[1], "shape.json").read_text()))
objective = build_objective(coverage, shape, parse_settings(cmin=0))
done = []
def stall():
    done.append(0)
    if len(done) == 3:
        print("ready", flush=True)
        time.sleep(60)
with open_storage(Path(sys.argv[2])) as storage:
    tpe_trials(objective, num_trials=9, seed=7, storage=storage.backend,
                   counts_fingerprint="sha256:counts", on_trial=stall)
"""
SHAPE = {
    "vocab_size": 200,
    "hidden_size": 4,
    "intermediate_size": 3,
    "num_attention_heads": 1,
    "num_hidden_layers": 8,
    "max_position_embeddings": 16,
}


def test_a_killed_search_leaves_its_trials_and_no_lock(tmp_path: Path) -> None:
    (tmp_path / "shape.json").write_text(json.dumps(SHAPE))
    path = tmp_path / "trials.journal"
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGKILL)
    coverage = Coverage(
        counts=np.arange(200),
        heldout_counts=np.zeros(200, dtype=np.int64),
        target_vocab_size=200,
        tokenizer_length=200,
        tokenizer_fingerprint="t",
        data_fingerprint="d",
    )
    shape = DraftShape.from_target_config(json.loads((tmp_path / "shape.json").read_text()))
    objective = build_objective(coverage, shape, parse_settings(cmin=0))
    started = time.monotonic()
    log = run(objective, path, 9, additional=False)
    assert time.monotonic() - started < 5  # Optuna's own lock would be waited for 30 s
    assert log.num_resumed == 3
    assert log.trials == run(objective, None, 9).trials
