"""The GPU benchmark runs to its end on a CPU, by the same code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu" / "llama8b.py"


@pytest.mark.slow
def test_the_gpu_benchmark_measures_both_vocabularies_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    options = ["--tiny", "--device", "cpu", "--warmup", "1", "--steps", "2", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(out.read_text())
    assert result["device"].startswith("CPU")
    assert [entry["k"] for entry in result["results"]] == [128, 512]
    for entry in result["results"]:
        with_target, without = (
            entry["tokens_per_second"], entry["tokens_per_second_without_target"],
        )  # fmt: skip
        assert 0 < with_target < without
        assert entry["peak_gib_draft_step"] is None  # a CPU counts none
