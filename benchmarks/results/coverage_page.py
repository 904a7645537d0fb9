"""Writes docs/results/coverage.md: vocabularies for three domains with Llama 3.1's tokenizer.

Usage: python benchmarks/results/coverage_page.py --tokenizer DIR [--data DIR] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("RAYON_NUM_THREADS", "1")
HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]


def main() -> None:
    """Reads, measures and writes the page, or says why it cannot."""
    parser = argparse.ArgumentParser(description=__doc__)
    data = Path(os.environ.get("VTRIM_DATA", PROJECT.parent / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=data, help="the chat files [VTRIM_DATA]")
    parser.add_argument(
        "--tokenizer",
        type=Path,
        default=os.environ.get("VTRIM_LLAMA_TOKENIZER"),
        help="folder of Llama 3.1's tokenizer [VTRIM_LLAMA_TOKENIZER]",
    )
    parser.add_argument("--out", type=Path, default=PROJECT / "docs" / "results" / "coverage.md")
    options = parser.parse_args()
    missing = absent(options.data, options.tokenizer)
    if missing:
        sys.stderr.write(f"skipped: {missing} (see benchmarks/results/README.md)\n")
        return
    from vtrim.models.hub import load_tokenizer

    options.out.parent.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(str(options.tokenizer), offline=True)
    options.out.write_text(page(options.data, tokenizer), encoding="utf-8")
    sys.stderr.write(f"{options.out}\n")


def absent(data: Path, tokenizer: Path | None) -> str | None:
    """What is not on this machine."""
    from domains import DOMAINS

    if tokenizer is None:
        return "no --tokenizer given"
    needed = [tokenizer / "tokenizer.json", *(data / file for file in DOMAINS.values())]
    return next((f"{path} is absent" for path in needed if not path.exists()), None)


def page(data: Path, tokenizer: Any) -> str:
    """The whole page as Markdown."""
    import tables
    from domains import coverage_of, read_domains, read_foreign
    from study import Study

    from vtrim.shape import DraftShape

    shape = DraftShape.from_target_config(json.loads((HERE / "llama31_8b.json").read_text()))
    rows = read_domains(data, tokenizer)
    studies = {name: Study(coverage_of(part), shape) for name, part in rows.items()}
    everything = Study(coverage_of([row for part in rows.values() for row in part]), shape)
    foreign = {name: coverage_of(part) for name, part in read_foreign(data, tokenizer).items()}
    parts = [
        tables.INTRODUCTION,
        tables.data_table(studies),
        tables.size_table(studies),
        tables.heldout_table(studies),
        tables.cross_table({**studies, "all three": everything}),
        tables.foreign_table(studies["general chat"], foreign),
        tables.source_table(studies),
        tables.miss_table(studies),
        tables.stability_table(rows, shape),
        tables.REPRODUCE,
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


if __name__ == "__main__":
    main()
