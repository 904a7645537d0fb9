"""DeepSpeed's own monitor, asked for in the user's config, gets what metrics.jsonl gets."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
def test_the_csv_monitor_has_the_numbers_of_the_log(
    training: Callable[..., Any], tmp_path: Path
) -> None:
    run = training()
    config = tmp_path / "ds.json"
    monitor = {"enabled": True, "output_path": str(tmp_path / "csv"), "job_name": "draft"}
    config.write_text(json.dumps({"csv_monitor": monitor}))
    options = ["--max-steps", 4, "--eval-every", 2, "--dtype", "fp32", "--decode-eval", 2]
    run.train(*options, "--deepspeed-config", config)

    def column(name: str) -> list[tuple[int, float]]:
        with (tmp_path / "csv" / "draft" / f"{name}.csv").open() as file:
            rows = list(csv.reader(file))
        return [(int(step), float(value)) for step, value in rows[1:]]

    for kind, name in (
        ("train", "loss"),
        ("train", "grad_norm"),
        ("train", "lr"),
        ("heldout", "joint_prefix"),
        ("decode", "acceptance_length"),
    ):
        logged = [(e["step"], pytest.approx(e[name])) for e in run.entries(kind)]
        assert column(f"{kind.title()}_{name}") == logged
