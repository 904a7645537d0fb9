"""Training speed and peak memory for Llama-3.1-8B shapes on one GPU: random weights, no download.

    python benchmarks/gpu/llama8b.py --out result.json         # one GPU of 80 GB or more, minutes
    python benchmarks/gpu/llama8b.py --tiny --device cpu       # the same code, seconds, any machine

Per vocabulary (k = 32,000 and all 128,256): reply and all tokens per second with the target's
forward and without it, and peak memory. ZeRO-2, bf16, sequences of 2,048 tokens, 7 unroll steps.
Weights and tokens are random, so the loss means nothing; the work is that of a real run.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from shapes import LLAMA31_8B, TINY, card, random_target

from vtrim.models.target import Target
from vtrim.shape import DraftShape
from vtrim.training.batch import TrainSample
from vtrim.training.data import Split
from vtrim.training.ds_config import deepspeed_config
from vtrim.training.feeder import Feeder
from vtrim.training.init import new_draft
from vtrim.training.launch import join_group
from vtrim.training.optimizer import make_engine
from vtrim.training.settings import TrainSettings
from vtrim.training.states import OnlineStates
from vtrim.training.teacher import Teacher
from vtrim.training.ttt import TTTModel, step_coefficients
from vtrim.vocab import DraftVocab

GIB = 1024**3
REPLY = 0.6  # share of the tokens that are reply


def random_split(count: int, length: int, vocab_size: int) -> Split:
    """Conversations of one question and one reply, all of the same length."""
    draw = np.random.default_rng(0)
    prompt = length - int(length * REPLY)
    samples = [
        TrainSample(draw.integers(0, vocab_size, length), np.arange(length) >= prompt, index)
        for index in range(count)
    ]
    return Split(samples, [], 0)


class Clock:
    """Seconds, and peak bytes, of stretches of work that are over on the device too."""

    def __init__(self, device: str) -> None:
        self.cuda = device.startswith("cuda")

    def now(self) -> float:
        """Seconds, when all work so far is done."""
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def peak(self) -> float | None:
        """Peak memory since the last call [GiB]; None on a CPU."""
        if not self.cuda:
            return None
        found = torch.cuda.max_memory_allocated() / GIB
        torch.cuda.reset_peak_memory_stats()
        return found


def measure(target: Target, k: int, options: argparse.Namespace, device: str) -> dict[str, Any]:
    """Trains a few steps with a vocabulary of ``k``; medians over the steps after the warm-up."""
    rows = target.vocab_size
    vocab = DraftVocab.full(rows) if k == rows else DraftVocab.of(range(k), rows)
    settings = TrainSettings(
        micro_batch=options.micro_batch,
        max_length=options.length,
        zero_stage=2,
        dtype="bf16",
        max_steps=options.warmup + options.steps,
    )
    shape = DraftShape.from_target_config(target.config.to_dict())
    draft = new_draft(target, shape, vocab, settings.head_init, settings.seed)
    parameters = sum(p.numel() for p in draft.parameters())
    online = OnlineStates(target)
    teacher = Teacher(target, torch.from_numpy(vocab.ids), torch.bfloat16, online)
    count = options.micro_batch * (options.warmup + options.steps)
    split = random_split(count, options.length, rows)
    feeder = Feeder(
        split, teacher, settings, rank=0, world=1, micro_batch=options.micro_batch, accum=1
    )
    model = TTTModel(draft, settings, teacher.logits)
    config = deepspeed_config(settings, 1, None)
    engine = make_engine(model, settings, config, settings.max_steps)
    timed = _steps(engine, feeder, settings, options, Clock(device))
    engine.destroy()
    del engine, model, draft, teacher, online
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    return {"k": k, "draft_parameters": parameters, **timed}


def _steps(
    engine: Any, feeder: Feeder, settings: TrainSettings, options: argparse.Namespace, clock: Clock
) -> dict[str, Any]:
    forwards, updates, peaks = [], [], []
    replies = 0
    for number in range(options.warmup + options.steps):
        work = feeder.work(number)
        replies = work.tokens
        coefficients = step_coefficients(work.divisors, settings.decay)
        clock.peak()
        begun = clock.now()
        rows, features = feeder.batch(work.micro[0])
        between, forward_peak = clock.now(), clock.peak()
        engine.backward(engine(rows, features, coefficients).total)
        engine.step()
        if number >= options.warmup:
            forwards.append(between - begun)
            updates.append(clock.now() - between)
            peaks.append((forward_peak, clock.peak()))
    forward, update = statistics.median(forwards), statistics.median(updates)
    tokens = options.micro_batch * options.length
    return {
        "tokens_per_second": round(tokens / (forward + update), 1),
        "tokens_per_second_without_target": round(tokens / update, 1),
        "reply_tokens_per_second": round(replies / (forward + update), 1),
        "target_forward_seconds": round(forward, 4),
        "draft_step_seconds": round(update, 4),
        "peak_gib_target_forward": _largest(peaks, 0),
        "peak_gib_draft_step": _largest(peaks, 1),
    }


def _largest(peaks: list[tuple[float | None, float | None]], which: int) -> float | None:
    known = [p[which] for p in peaks if p[which] is not None]
    return round(max(known), 2) if known else None


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="small shapes, to try the script")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--k", type=int, nargs="*", help="vocabulary sizes (default: both)")
    parser.add_argument("--length", type=int, help="tokens a sequence (default: 2048)")
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", type=Path, help="also write the JSON there")
    options = parser.parse_args()
    options.length = options.length or (64 if options.tiny else 2048)
    return options


def main() -> None:
    """Measures and prints one JSON object."""
    options = parse()
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)  # it writes to stdout
    device = join_group(options.device)
    target = random_target(TINY if options.tiny else LLAMA31_8B, device)
    weights = sum(p.nbytes for p in target.model.parameters()) / GIB
    sizes = options.k or [128 if options.tiny else 32_000, target.vocab_size]
    result = {
        "device": card(device),
        "shape": "tiny" if options.tiny else "Llama-3.1-8B, random weights",
        "zero_stage": 2,
        "dtype": "bf16",
        "length": options.length,
        "micro_batch": options.micro_batch,
        "ttt_steps": TrainSettings.ttt_steps,
        "target_weights_gib": round(weights, 3),
        "results": [measure(target, k, options, device) for k in sizes],
    }
    text = json.dumps(result, indent=2)
    if options.out:
        options.out.write_text(text + "\n")
    print(text)  # noqa: T201


if __name__ == "__main__":
    main()
