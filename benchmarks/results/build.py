"""Writes the pages of docs/results, each by its own script from what was recorded.

    python benchmarks/results/build.py [PAGE ...]     # all pages, or these
    python benchmarks/results/build.py --check        # exit code 1 where a page would change

Nothing is measured here. README.md beside this file says by which commands each record was made.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1]
DOCS = BENCHMARKS.parent / "docs" / "results"
PAGES = {
    "coverage": "results/coverage_page.py",
    "training": "results/training_page.py",
    "dropmatch": "results/dropmatch.py",
    "domains": "domains/page.py",
    "vllm": "vllm/page.py",
    "papers": "results/papers.py",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks; exit code 1 where a page failed or would change."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=", ".join(PAGES))
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.pages if name not in PAGES]
    if unknown:
        parser.error(f"no page {', '.join(unknown)}; there are {', '.join(PAGES)}")
    wrong = [name for name in options.pages or PAGES if not built(name, check=options.check)]
    if wrong:
        sys.stderr.write(f"{'changed or ' if options.check else ''}failed: {', '.join(wrong)}\n")
    return 1 if wrong else 0


def built(name: str, *, check: bool) -> bool:
    """Whether the page's script ran to its end and, for a check, gave what is in docs/results."""
    page = DOCS / f"{name}.md"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / page.name if check else page
        script = [sys.executable, "-B", str(BENCHMARKS / PAGES[name]), "--out", str(out)]
        if subprocess.run(script, check=False).returncode != 0:  # noqa: S603 - our own scripts
            return False
        return not check or (page.exists() and page.read_bytes() == out.read_bytes())


if __name__ == "__main__":
    sys.exit(main())
