"""The commands a user types, through the real console script, on a tiny real model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

VTRIM = Path(sys.executable).with_name("vtrim")
TRAIN = ["--max-steps", "12", "--micro-batch", "4", "--ttt-steps", "3", "--lr", "3e-3"]
TRAIN += ["--eval-every", "6", "--save-every", "4", "--dtype", "fp32"]


def vtrim(*arguments: str, run: Path, code: int = 0) -> dict[str, Any]:
    """Runs a command with --json; its one JSON object."""
    environment = {**os.environ, "VTRIM_RUN": str(run), "OMP_NUM_THREADS": "1"}
    command = [str(VTRIM), *arguments, "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    value: dict[str, Any] = json.loads(done.stdout) if code == 0 else {}
    return value


@pytest.fixture(scope="module")
def counted(tiny_target: Path, tiny_chat: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder after coverage and search."""
    run = tmp_path_factory.mktemp("run")
    vtrim("coverage", str(tiny_chat), "--target", str(tiny_target), run=run)
    vtrim("search", "--alpha", "0.6", "--cmin", "0.8", run=run)
    return run


@pytest.mark.slow
def test_four_commands_go_from_chat_data_to_measured_decoding(counted: Path) -> None:
    trained = vtrim("train-draft", *TRAIN, run=counted)
    assert trained["steps"] == 12
    assert trained["heldout_joint_prefix"] >= 1.0
    assert (counted / "draft" / "model.safetensors").exists()
    assert "vllm serve" in (counted / "draft" / "README.md").read_text()
    measured = vtrim(
        "eval", "--acceptor", "dropmatch", "--num-prompts", "2", "--max-new-tokens", "8",
        run=counted,
    )  # fmt: skip
    assert measured["acceptance_length"] >= 1.0
    assert measured["exact"]["acceptance_length"] >= 1.0
    page = vtrim("report", run=counted)
    assert Path(page["artifact"]).read_text().startswith("<!doctype html>")
