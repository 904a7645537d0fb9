"""Writes docs/results/domains.md: trimmed against whole vocabulary in three domains.

python benchmarks/domains/page.py DIR      # folds the runs of run.py into domains.json first
python benchmarks/domains/page.py [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
RECORD = PROJECT / "benchmarks" / "results" / "domains.json"
sys.path.append(str(RECORD.parent))  # tabular


def main() -> None:
    """Folds new runs where a folder is named, then writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="folder of run.py")
    parser.add_argument("--out", type=Path, default=PROJECT / "docs" / "results" / "domains.md")
    options = parser.parse_args()
    if options.folder is not None:
        from domain_record import fold

        RECORD.write_text(dump(fold(options.folder)), encoding="utf-8")
    if not RECORD.exists():
        raise SystemExit(f"{RECORD}: no such file. Name the folder of run.py.")
    options.out.write_text(page(json.loads(RECORD.read_text(encoding="utf-8"))), encoding="utf-8")
    sys.stderr.write(f"{options.out}\n")


def dump(record: dict[str, Any]) -> str:
    """The record as JSON, a draft and a result a line."""
    parts = [f' "facts": {json.dumps(record["facts"])}']
    drafts = [f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in record["drafts"].items()]
    parts.append(' "drafts": {\n' + ",\n".join(drafts) + "\n }")
    results = [f"  {json.dumps(one)}" for one in record["results"]]
    parts.append(' "results": [\n' + ",\n".join(results) + "\n ]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def page(record: dict[str, Any]) -> str:
    """The whole page as Markdown; every number comes from the record or from the paper."""
    import domain_tables as tables
    from domain_measured import Measured
    from tabular import page_of

    measured = Measured(record)
    parts = [
        tables.introduction(measured),
        tables.gain_table(measured),
        tables.length_table(measured),
        tables.general_table(measured),
        tables.draft_table(measured),
        tables.prediction_table(measured),
        tables.noise_table(measured),
        tables.REPRODUCE,
    ]
    return page_of(parts)


if __name__ == "__main__":
    main()
