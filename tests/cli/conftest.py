"""What tests of the commands share."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from vtrim.cli.main import main

WORDS = ["red", "blue", "green", "gold", "cat", "dog", "fox", "owl", "bee", "yes", "no", "one"]


Vtrim = Callable[..., tuple[int, str, str]]


@pytest.fixture
def vtrim(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Vtrim:
    """Runs a command: exit code, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return int(ended.value.code or 0), out, err

    return call


@dataclass
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1, self.out
        value: dict[str, Any] = json.loads(self.out)
        return value

    @property
    def error(self) -> str:
        """The one error line, and nothing on stdout."""
        assert (self.code, self.out) == (2, ""), (self.code, self.out, self.err)
        line = self.err.splitlines()[-1]
        assert line.startswith("error: "), self.err
        return line


@pytest.fixture
def cover(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    """cover(run, *arguments) -> how `vtrim coverage ARGUMENTS --run RUN` ended."""
    for name in ("VTRIM_RUN", "RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "140")

    def call(run: Path, *arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main(["coverage", *map(str, arguments), "--run", str(run)])
        captured = capsys.readouterr()
        return Outcome(int(stop.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three files (JSONL, gzip, parquet) with all that counting has to tell apart.

    Sources and none, conversations that repeat, unknown roles, rows without a reply, blank lines,
    lines that are no JSON, several kinds of rows.
    """
    import pyarrow as pa
    from pyarrow import parquet

    folder, draw = tmp_path_factory.mktemp("corpus"), random.Random(3)
    rows = [_row(draw) for _ in range(500)]
    rows += draw.sample(rows, 60)
    lines = [json.dumps(row) for row in rows]
    for line in (
        "",
        "{cut",
        '{"messages": [{"role": "[x]", "content": "no"}]}',
        '{"messages": []}',
    ):
        for _ in range(5):
            lines.insert(draw.randrange(len(lines)), line)
    plain, packed, table = (folder / name for name in ("a.jsonl", "b.jsonl.gz", "c.parquet"))
    plain.write_text("\n".join(lines) + "\n")
    packed.write_bytes(
        gzip.compress("\n".join(json.dumps(_row(draw)) for _ in range(150)).encode())
    )
    columns = {
        "instruction": [" ".join(draw.choices(WORDS, k=3)) for _ in range(130)],
        "output": [" ".join(draw.choices(WORDS, k=6)) for _ in range(130)],
    }
    parquet.write_table(pa.table(columns), table, row_group_size=40)
    return [plain, packed, table]


def _row(draw: random.Random) -> dict[str, Any]:
    turns = []
    for _ in range(draw.randint(1, 3)):
        turns.append({"role": "user", "content": " ".join(draw.choices(WORDS, k=3))})
        reply = " ".join(draw.choices(WORDS, range(12, 0, -1), k=draw.randint(0, 9)))
        turns.append({"role": "assistant", "content": reply})
    row: dict[str, Any] = {"messages": turns}
    if draw.random() < 0.8:
        row["source"] = draw.choice(["talk", "code", "[maths]"])
    return row
