"""Cost of a training step at the trimmed and at the full vocabulary, in one process, alternating.

    OMP_NUM_THREADS=1 python benchmarks/training/step.py [--k 4096] [--rounds 5]

The target's states are computed before (they are the same for every vocabulary); a step is the
soft targets, the unrolled forward and backward of ``TTTModel``, and AdamW, in bf16.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

from vtrim.chat.read import read_conversations
from vtrim.chat.render import Renderer
from vtrim.chat.skips import SkipLog
from vtrim.config import recipes_folder
from vtrim.models.hub import load_config, load_tokenizer
from vtrim.models.target import load_target
from vtrim.shape import DraftShape
from vtrim.training.batch import TrainSample, make_rows
from vtrim.training.data import split_samples
from vtrim.training.init import new_draft
from vtrim.training.teacher import Teacher
from vtrim.training.ttt import TTTModel, step_loss
from vtrim.vocab import DraftVocab

HERE = Path(__file__).parent
BATCH, STEPS = 4, 3


def samples(count: int) -> list[TrainSample]:
    """The first ``count`` training samples of the demo."""
    renderer = Renderer(load_tokenizer("smollm2"))
    replies = recipes_folder() / "demo" / "replies.jsonl.gz"
    conversations = read_conversations([replies], skipped=SkipLog())
    rendered = (s for c in conversations for s in renderer.samples(c))
    return split_samples(rendered, "exact").train[:count]


class Case:
    """One vocabulary size: its draft, optimiser and teacher with the states already kept."""

    def __init__(self, k: int, batches: list[list[TrainSample]]) -> None:
        target = load_target("smollm2", dtype=torch.bfloat16)
        ids = range(k)  # which ids are kept does not change the cost
        vocab = DraftVocab.of(ids, target.vocab_size)
        shape = DraftShape.from_target_config(load_config("smollm2"))
        draft = new_draft(target, shape, vocab, "target", 0).to(torch.bfloat16)
        self.model = TTTModel(draft, STEPS)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
        self.teacher = Teacher(target, torch.from_numpy(vocab.ids), torch.bfloat16, 8 << 30)
        for batch in batches:
            self.teacher.features(batch, make_rows(batch, STEPS, "exact"))

    def step(self, batch: list[TrainSample]) -> float:
        """CPU seconds of one step."""
        begun = time.process_time()
        rows = make_rows(batch, STEPS, "exact")
        sums = self.model(rows, self.teacher.features(batch, rows))
        step_loss(sums, sums.rows, 0.8).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.process_time() - begun


def main() -> None:
    """Prints and stores reply tokens per CPU second for both vocabularies, and their ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--k", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = samples(4 * BATCH)
    batches = [chosen[i : i + BATCH] for i in range(0, len(chosen), BATCH)]
    tokens = sum(int(s.loss_mask.sum()) for s in chosen)
    cases = {k: Case(k, batches) for k in (options.k, 49152)}
    for case in cases.values():
        case.step(batches[0])
    rates: dict[int, list[float]] = {k: [] for k in cases}
    for _ in range(options.rounds):
        for k, case in cases.items():
            rates[k].append(tokens / sum(case.step(batch) for batch in batches))
    middle = {k: statistics.median(values) for k, values in rates.items()}
    result = {
        "k": options.k,
        "ttt_steps": STEPS,
        "batch": BATCH,
        "reply_tokens_per_cpu_second": {str(k): round(v, 1) for k, v in middle.items()},
        "spread": {str(k): [round(min(v), 1), round(max(v), 1)] for k, v in rates.items()},
        "ratio": round(middle[options.k] / middle[49152], 2),
        "torch": torch.__version__,
    }
    (HERE / "last_result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))  # noqa: T201


if __name__ == "__main__":
    main()
