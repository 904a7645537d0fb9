"""The page on trimmed drafts in vLLM: its numbers against sums done by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROMPTS = 6


def engine(drafts: int, accepted: int, emitted: int, seconds: float) -> dict[str, Any]:
    """Every prompt alike: intervals are then as narrow as the number itself."""
    columns = {
        "emitted": emitted,
        "steps": drafts,
        "drafts": drafts,
        "accepted": accepted,
        "wall_seconds": 2 * seconds,
        "cpu_seconds": seconds,
    }
    return {name: [value] * PROMPTS for name, value in columns.items()}


def test_rates_are_sums_over_sums_and_a_prompts_seconds_its_median_round(tmp_path: Path) -> None:
    same = {"same_reply": [True, True, True, True, True, False]}
    rounds = [
        {
            "plain": engine(0, 0, 60, 6.0 * slow),
            "full": engine(40, 20, 60, 5.0 * slow) | same,
            "trimmed": engine(42, 18, 60, 4.0 * slow) | same,
        }
        for slow in (1.0, 9.0, 1.0)
    ]
    drafts = {"full": {"k": 100}, "trimmed": {"k": 25}}
    settings = {
        "target": "toy", "target_vocab_size": 100, "drafts": drafts, "prompts": "p.jsonl",
        "num_prompts": PROMPTS, "max_new_tokens": 61, "num_draft_tokens": 3, "dtype": "bfloat16",
        "threads": 1,
    }  # fmt: skip
    about = {"versions": {"vllm": "1"}, "machine": "toy", "date": "2026-01-01"}
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"settings": settings, **about, "rounds": rounds}))
    script = [sys.executable, str(ROOT / "benchmarks" / "vllm" / "page.py")]
    subprocess.run([*script, "--record", record, "--out", tmp_path / "page.md"], check=True)

    page = (tmp_path / "page.md").read_text()
    assert (
        "| draft, trimmed | 25 | 1.43 (1.43 to 1.43) | 15.0 (15.0 to 15.0) | 7.5 (7.5 to 7.5) "
        "| 1.50 x | 83 % |"
    ) in page
    assert "| acceptance length | -4.8 % | -4.8 to -4.8 % | 0.0312 |" in page  # 2 of 2**6 swaps
    assert "| tokens per CPU second | +25.0 % | +25.0 to +25.0 % | 0.0312 |" in page
