"""The GPU benchmarks run to their end on a CPU, by the same code."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"
PHASES = ("draft", "verify", "accept", "other")


def benchmark(script: str, out: Path, *options: str) -> Any:
    """What a script writes with --tiny on a CPU."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), "--tiny", "--device", "cpu", *options,
         "--out", str(out)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(out.read_text()), done.stdout


@pytest.mark.slow
def test_the_gpu_benchmark_measures_both_vocabularies_on_a_cpu(tmp_path: Path) -> None:
    result, _ = benchmark("llama8b.py", tmp_path / "result.json", "--warmup", "1", "--steps", "2")
    assert result["device"].startswith("CPU")
    assert [entry["k"] for entry in result["results"]] == [128, 512]
    for entry in result["results"]:
        with_target, without = (
            entry["tokens_per_second"], entry["tokens_per_second_without_target"],
        )  # fmt: skip
        assert 0 < with_target < without
        assert entry["peak_gib_draft_step"] is None  # a CPU counts none


@pytest.mark.slow
def test_the_decoding_benchmark_keeps_whole_proposals_in_every_cell_on_a_cpu(
    tmp_path: Path,
) -> None:
    result, printed = benchmark("decoding.py", tmp_path / "result.json", "--rounds", "1")
    assert result["device"].startswith("CPU")
    assert result["not_measured"] == []
    assert [pair["name"] for pair in result["pairs"]] == ["smollm2", "llama8b"]
    for pair in result["pairs"]:
        assert pair["lean_forward"]
        assert pair["lean_draft"]
        cells = [(row["drafts"], row["num_draft_tokens"], row["rule"]) for row in pair["rows"]]
        one_batch = [
            ("none", 0, "plain"),
            *(("chain", n, rule) for n in (3, 5) for rule in ("greedy", "naive", "full")),
            ("tree", 3, "greedy"), ("tree", 3, "naive"),
            ("none", 0, "plain"), ("chain", 5, "greedy"),
        ]  # fmt: skip
        assert cells == 2 * one_batch
        for row in pair["rows"]:
            assert row["accepted_per_round"] == row["num_draft_tokens"]
            assert sum(row["shares"].values()) == pytest.approx(1, abs=1e-3)
            assert row["peak_gib"] is None  # a CPU counts none
            assert (row["cycle_over_lean"] is None) == (row["forward"] == "lean")
            if row["rule"] == "full":
                assert row["accept_over_head_product"] > 0
    assert printed.count("\n") == 2 + sum(len(pair["rows"]) for pair in result["pairs"])


def test_a_cells_row_has_the_medians_of_its_rounds_and_what_it_costs_above_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    case = importlib.import_module("decoding_case")
    report = importlib.import_module("decoding_table")

    def sample(*milliseconds: tuple[float, ...]) -> Any:
        times = [dict(zip(PHASES, (ms / 1e3 for ms in one), strict=True)) for one in milliseconds]
        return report.Sample(times, [3, 2], peak=2**31)

    naive = case.Cell("chain", 3, "naive")
    plain, _, row = report.rows(
        {
            naive.baseline: sample((0, 4, 0, 0)),
            naive.exact: sample((1, 5, 1, 0)),
            naive: sample((1, 5, 3, 1), (100, 5, 3, 1), (1, 5, 3, 100)),
        },
        2,
        {3: 0.5},
    )
    assert plain["break_even_acceptance_length"] == 1
    assert [row[f"{phase}_ms"] for phase in PHASES] == pytest.approx([1, 5, 3, 1])
    assert row["cycle_ms"] == pytest.approx(10)
    assert row["shares"]["accept"] == pytest.approx(0.3)
    assert row["above_greedy_share"] == pytest.approx(0.2)  # (3 - 1) / 10
    assert row["break_even_acceptance_length"] == pytest.approx(2.5)
    assert row["accept_over_head_product"] == pytest.approx(3)  # 3 ms of 2 sequences, 0.5 ms each
    assert row["accepted_per_round"] == 2.5
    assert row["peak_gib"] == 2


def test_a_cell_that_fails_or_comes_too_late_is_told_and_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    case = importlib.import_module("decoding_case")
    script = importlib.import_module("decoding")
    pair = case.make_pair(case.tiny(case.SOURCES[0]), None, "cpu")
    late = script.Session("cpu", [1], 1, 0, 4, deadline=0.0)
    assert late.measure(pair) == []
    assert len(late.skipped) == script.TURNS * len(pair.cells)
    assert {one["reason"] for one in late.skipped} == {"the time was up"}

    failing = script.Session("cpu", [1], 1, 0, 4, deadline=float("inf"))
    take = script.Session._take

    def fails_on_trees(self: Any, pair: Any, cell: Any, *rest: Any) -> None:
        if cell.drafts == "tree":
            raise RuntimeError("out of memory\nmore")
        take(self, pair, cell, *rest)

    monkeypatch.setattr(script.Session, "_take", fails_on_trees)
    assert {row["drafts"] for row in failing.measure(pair)} == {"none", "chain"}
    assert {one["reason"] for one in failing.skipped} == {"out of memory"}
    assert "RuntimeError: out of memory" in capsys.readouterr().err
