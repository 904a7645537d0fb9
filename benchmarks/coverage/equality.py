"""Every row counted by segments, by words and by gigatoken against full renders, all tokenizers.

Usage: python benchmarks/coverage/equality.py DATA... --tokenizers DIR [--models NAME...]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from bench import DIALECTS, VTRIM, load

from vtrim.chat.feed import FastPathDiffers, ReplyFeed
from vtrim.chat.gigatoken import NotProved
from vtrim.chat.read import read_conversations
from vtrim.chat.render import Renderer
from vtrim.chat.skips import SkipLog
from vtrim.trimming.count import Tally


def main() -> None:
    """Prints a row a tokenizer; exit code 1 where any count differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--tokenizers", type=Path, required=True, help="a folder for each model")
    parser.add_argument("--models", nargs="+", default=sorted(DIALECTS))
    options = parser.parse_args()
    differ = False
    for name in options.models:
        tokenizer = load(options.tokenizers, name)
        started = time.process_time()
        full, feed = tally(options.data, tokenizer, full=True)
        seconds = time.process_time() - started
        outcomes = []
        for encoder in VTRIM:
            outcome = compared(options.data, tokenizer, full, encoder)
            differ |= outcome.endswith("DIFFERENT")
            outcomes.append(f"{encoder}: {outcome}")
        sys.stdout.write(
            f"{name}: {feed.rows_used:,} rows, {int(full.counts.sum()):,} reply tokens "
            f"(full renders {seconds:.1f} CPU s); {'; '.join(outcomes)}\n"
        )
        sys.stdout.flush()
    sys.exit(1 if differ else 0)


def compared(files: list[Path], tokenizer: Any, full: Tally, encoder: str) -> str:
    """Whether counts, held-out counts, counts by source and the sample equal those of ``full``."""
    try:
        fast, feed = tally(files, tokenizer, encoder=encoder)
    except NotProved as error:
        return f"not used ({error})"
    except FastPathDiffers as error:
        return f"{error} is DIFFERENT"
    sources, expected = fast.by_source or {}, full.by_source or {}
    same = (
        np.array_equal(fast.counts, full.counts)
        and np.array_equal(fast.heldout_counts, full.heldout_counts)
        and sources.keys() == expected.keys()
        and all(np.array_equal(sources[name], expected[name]) for name in expected)
        and np.array_equal(fast.sample.build().ids, full.sample.build().ids)
    )
    return f"{feed.rows_fast:,} rows without rendering, {'equal' if same else 'DIFFERENT'}"


def tally(files: list[Path], tokenizer: Any, **options: Any) -> tuple[Tally, ReplyFeed]:
    """The counts, and the feed that gave them."""
    found = Tally(len(tokenizer))
    feed = ReplyFeed(Renderer(tokenizer), sample=found.sample, **options)
    return found.update(feed.feed(read_conversations(files, skipped=SkipLog()))), feed


if __name__ == "__main__":
    main()
