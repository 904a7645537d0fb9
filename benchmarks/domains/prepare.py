"""Prompts of the three domains, apart: some to train on, others to measure with.

    python benchmarks/domains/prepare.py ../shared/data DIR

General chat's are the demo's own (recipes/demo). Function calling: BFCL rows with prompts of at
most 1,200 characters (longer ones cost a CPU hours), a share of them held out. NER: sentences of
the corpora's training and development parts, held-out ones of CrossNER's test parts. Rows are
drawn with a fixed seed and no prompt is in both files.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

RECIPES = Path(__file__).resolve().parents[2] / "recipes" / "demo"
SEED = 20260605
Row = dict[str, Any]


def main() -> None:
    """Writes all three folders."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--heldout", type=int, default=40, help="prompts to measure with, a domain")
    args = parser.parse_args()
    copy_general(args.output / "general")
    tools = list(rows(args.data / "function_calling_messages.jsonl"))
    split(args.output / "tools", tools, _short_bfcl, 1100, args.heldout)
    ner = list(rows(args.data / "ner_messages.jsonl"))
    split(args.output / "ner", ner, lambda _: True, 2400, args.heldout, test=_is_test)


def split(
    folder: Path,
    found: list[Row],
    wanted: Callable[[Row], bool],
    number: int,
    heldout: int,
    test: Callable[[Row], bool] | None = None,
) -> None:
    """Draws both files; where ``test`` tells a corpus's own test rows, held-out ones are those."""
    found = [row for row in found if wanted(row)]
    random.Random(SEED).shuffle(found)  # noqa: S311 - a draw, no secret
    apart = [row for row in found if test is None or test(row)][:heldout]
    seen = {prompt(row) for row in apart}
    rest = [row for row in found if prompt(row) not in seen and not (test and test(row))]
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "prompts.jsonl", rest[:number])
    write(folder / "heldout.jsonl", apart)


def copy_general(folder: Path) -> None:
    """The demo's own prompts."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(RECIPES / "prompts.jsonl", folder / "prompts.jsonl")
    shutil.copyfile(RECIPES / "heldout_prompts.jsonl", folder / "heldout.jsonl")


def prompt(row: Row) -> str:
    """What stands before the reply, as one comparable text."""
    return json.dumps(row["messages"][:-1])


def rows(path: Path) -> Iterable[Row]:
    """The rows of a JSONL file."""
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def write(path: Path, kept: list[Row]) -> None:
    """A row a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")


def _short_bfcl(row: Row) -> bool:
    return row["source"] == "bfcl" and sum(len(m["content"]) for m in row["messages"][:-1]) <= 1200


def _is_test(row: Row) -> bool:
    return str(row["split"]).endswith("_test")


if __name__ == "__main__":
    main()
