"""Writes docs/results/papers.md: the two papers' tables beside what was measured here.

python benchmarks/results/papers.py [--out FILE]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import papers_dropmatch
import papers_trimming
from tabular import page_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "papers.md"

INTRODUCTION = """
# Results: the two papers' tables beside ours

Every table of arXiv:2603.05210 (choosing the draft vocabulary) and arXiv:2603.03333 (DropMatch)
whose numbers we could read, with the rows that were measured here below the paper's, and in each of
ours what differs. The papers' targets have 8 to 70 billion parameters and ran on data-centre GPUs;
what decodes here has 135 million and ran on one CPU core. Where only counts or formulas matter,
ours are of the papers' own model shapes and tokenizer. What could not be repeated is listed with
the reason. Of 2603.05210 we had the authors' script and its README; its results are as others quote
them. Numbers alone do not tell whether a result is the same: read the last column.

`benchmarks/results/papers.py` writes this page from the records of the other pages.
"""


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    options.out.write_text(page(), encoding="utf-8")
    sys.stderr.write(f"{options.out}\n")


def page() -> str:
    """The whole page as Markdown."""
    parts = [INTRODUCTION, *papers_trimming.parts(), *papers_dropmatch.parts()]
    return page_of(parts)


if __name__ == "__main__":
    main()
