"""One process of the benchmark: one trainer at one size, a step for each line on stdin."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peers import PEERS
from torch import Tensor
from torch.profiler import record_function

from vtrim.models.hub import load_config
from vtrim.models.target import Target, load_target
from vtrim.shape import DraftShape
from vtrim.training.batch import TrainSample, make_rows
from vtrim.training.init import new_draft
from vtrim.training.rows import teacher_positions
from vtrim.training.settings import TrainSettings
from vtrim.training.states import SampleStates, full_vocabulary
from vtrim.training.teacher import Teacher
from vtrim.training.ttt import TTTModel, step_coefficients
from vtrim.vocab import DraftVocab

TARGET = "smollm2"
STEPS, DECAY = 7, 0.8

Step = Callable[[], Tensor]


@dataclass(frozen=True)
class Case:
    """What is measured. trainer: vtrim, specforge or eagle; rows: reply or all."""

    trainer: str
    k: int
    dtype: str = "fp32"
    length: int = 512
    rows: str = "reply"

    @property
    def name(self) -> str:
        """Short and unique."""
        return f"{self.trainer} k={self.k} {self.dtype} T={self.length} {self.rows}"


class StoredStates:
    """The decoder's states read from the inputs; the head's work is done at every step."""

    def __init__(self, target: Target, aux: Tensor, hidden: Tensor) -> None:
        self.target, self.aux, self.hidden = target, aux, hidden

    @torch.no_grad()
    def states(
        self, samples: Sequence[TrainSample], *, heldout: bool = False
    ) -> list[SampleStates]:
        """See ``vtrim.training.states.StateSource``."""
        del heldout
        found = []
        for sample in samples:
            hidden = self.hidden[sample.index, teacher_positions(sample.loss_mask)]
            with record_function("teacher"):
                best, log_z = full_vocabulary(self.target, hidden)
            found.append(SampleStates(self.aux[sample.index], hidden, best, log_z))
        return found


def build(case: Case, inputs: dict[str, Tensor]) -> tuple[Step, torch.nn.Module]:
    """The step of a case, forward and backward, and the parameters it trains."""
    dtype = torch.bfloat16 if case.dtype == "bf16" else torch.float32
    target = load_target(TARGET, dtype=dtype)
    vocab = DraftVocab.of(inputs["ranked"][: case.k].tolist(), target.vocab_size)
    shape = DraftShape.from_target_config(load_config(TARGET))
    draft = new_draft(target, shape, vocab, "target", 0).to(dtype)
    ids, mask = (inputs[name][:, : case.length] for name in ("ids", "mask"))
    mask = torch.ones_like(mask) if case.rows == "all" else mask
    aux, hidden = (inputs[n][:, : case.length].to(dtype) for n in ("aux", "hidden"))
    if case.trainer == "vtrim":
        return _ours(target, draft, ids, mask, aux, hidden, case), draft
    peer = PEERS[case.trainer](draft, target.logits, target.vocab_size, STEPS)
    return lambda: peer(ids, mask, target.embedding, aux, hidden, DECAY), draft


def _ours(
    target: Target, draft: Any, ids: Tensor, mask: Tensor, aux: Tensor, hidden: Tensor, case: Case
) -> Step:
    settings = TrainSettings(ttt_steps=STEPS, decay=DECAY, dtype=case.dtype)  # type: ignore[arg-type]
    bins = [[TrainSample(i.numpy(), m.numpy(), b)] for b, (i, m) in enumerate(zip(ids, mask))]  # noqa: B905
    source = StoredStates(target, aux, hidden)
    teacher = Teacher(target, draft.vocab_ids, aux.dtype, source)

    def teacher_logits(states: Tensor) -> Tensor:
        with record_function("teacher"):
            return teacher.logits(states)

    model = TTTModel(draft, settings, teacher_logits)

    def step() -> Tensor:
        rows = make_rows(bins, STEPS, settings.mask_alignment)
        coefficients = step_coefficients(torch.tensor(rows.counts), DECAY)
        return model(rows, teacher.features(bins, rows), coefficients).total

    return step


def memory(key: str) -> float:
    """A line of /proc/self/status [MB]."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1000


def serve(case: Case, inputs: dict[str, Tensor]) -> None:
    """Runs a step for each line on stdin; prints CPU seconds and the peak above the start [MB]."""
    torch.set_num_threads(1)
    step, draft = build(case, inputs)
    optimizer = torch.optim.AdamW(draft.parameters(), lr=1e-5)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of loading
    start = memory("VmRSS")
    print("ready", flush=True)  # noqa: T201
    for _ in sys.stdin:
        begun = time.process_time()
        loss = step()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        seconds = time.process_time() - begun
        done = {"seconds": seconds, "peak": memory("VmHWM") - start, "loss": loss.item()}
        print(json.dumps(done), flush=True)  # noqa: T201


if __name__ == "__main__":
    serve(Case(**json.loads(sys.argv[1])), torch.load(sys.argv[2], mmap=True))
