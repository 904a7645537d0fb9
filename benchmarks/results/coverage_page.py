"""Writes docs/results/coverage.md: vocabularies for three domains with Llama 3.1's tokenizer.

python benchmarks/results/coverage_page.py --tokenizer DIR [--data DIR]   # measures anew first
python benchmarks/results/coverage_page.py [--out FILE]                   # from coverage.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import coverage_tables as tables
from tabular import page_of

os.environ.setdefault("RAYON_NUM_THREADS", "1")
HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
RECORD = HERE / "coverage.json"


def main() -> None:
    """Measures where a tokenizer is named, then writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    data = Path(os.environ.get("VTRIM_DATA") or PROJECT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=data, help="the chat files [VTRIM_DATA]")
    parser.add_argument("--tokenizer", type=Path, help="folder of Llama 3.1's tokenizer")
    parser.add_argument("--out", type=Path, default=PROJECT / "docs" / "results" / "coverage.md")
    options = parser.parse_args()
    if options.tokenizer is not None:
        RECORD.write_text(measured(options.data, options.tokenizer), encoding="utf-8")
    options.out.write_text(page(json.loads(RECORD.read_text(encoding="utf-8"))), encoding="utf-8")
    sys.stderr.write(f"{options.out}\n")


def measured(data: Path, tokenizer: Path) -> str:
    """The record as JSON; the process stops where a file is absent."""
    from coverage_measure import measure

    from vtrim.models.hub import load_tokenizer

    missing = absent(data, tokenizer)
    if missing:
        raise SystemExit(f"{missing} (see benchmarks/results/README.md)")
    return json.dumps(measure(data, load_tokenizer(str(tokenizer), offline=True)), indent=1) + "\n"


def absent(data: Path, tokenizer: Path) -> str | None:
    """What is not on this machine."""
    from domains import DOMAINS

    needed = [tokenizer / "tokenizer.json", *(data / file for file in DOMAINS.values())]
    return next((f"{path} is absent" for path in needed if not path.exists()), None)


def page(record: dict[str, Any]) -> str:
    """The whole page as Markdown."""
    parts = [
        tables.introduction(record),
        tables.data_table(record),
        tables.size_table(record),
        tables.heldout_table(record),
        tables.cross_table(record),
        tables.foreign_table(record),
        tables.source_table(record),
        tables.miss_table(record),
        tables.stability_table(record),
        tables.REPRODUCE,
    ]
    return page_of(parts)


if __name__ == "__main__":
    main()
