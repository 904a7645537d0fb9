"""The training loop: DeepSpeed from the first line, resumable at every checkpoint."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from vtrim.models.draft import Eagle3Draft
from vtrim.training.checkpoint import (
    barrier,
    is_rank_zero,
    list_checkpoints,
    load_checkpoint,
    save_checkpoint,
)
from vtrim.training.data import Split
from vtrim.training.feeder import Feeder
from vtrim.training.heldout import HeldOut, evaluate
from vtrim.training.log import MetricsLog
from vtrim.training.optimizer import make_engine
from vtrim.training.settings import TrainSettings
from vtrim.training.teacher import Teacher
from vtrim.training.ttt import StepSums, TTTModel, step_coefficients
from vtrim.training.weights import BestWeights

Progress = Callable[[int, float, str], None]
"""Told after each step: its number, the share of the run that is done, and a line about it."""


@dataclass
class TrainState:
    """What a checkpoint carries beside weights and optimiser."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: dict[str, Any] = field(default_factory=dict)
    heldout: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The fields as a plain mapping."""
        return dict(vars(self))


class Trainer:
    """One run: engine, data plan, teacher, log. ``run()`` trains to the end or to a signal."""

    def __init__(
        self,
        draft: Eagle3Draft,
        teacher: Teacher,
        split: Split,
        settings: TrainSettings,
        ds_config: dict[str, Any],
        folder: Path,
    ) -> None:
        self.settings = settings
        self.teacher = teacher
        self.split = split
        self.folder = folder
        self.checkpoints = folder / "checkpoints"
        self.log = MetricsLog(folder / "metrics.jsonl")
        self.best = BestWeights(folder / "best")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.device = str(teacher.target.device)
        self.accum = int(ds_config["gradient_accumulation_steps"])
        self.feeder = Feeder(
            split,
            teacher,
            settings,
            rank=self.rank,
            world=self.world,
            micro_batch=int(ds_config["train_micro_batch_size_per_gpu"]),
            accum=self.accum,
        )
        model = TTTModel(draft, settings, teacher.logits)
        self.engine = make_engine(model, settings, ds_config)
        self._peak_rates = [group["lr"] for group in self.engine.optimizer.param_groups]
        self.state = TrainState()
        self._stop_signal = 0

    @property
    def model(self) -> TTTModel:
        """The wrapped module."""
        module: TTTModel = self.engine.module
        return module

    def resume(self) -> bool:
        """Continues from the newest checkpoint, if there is one."""
        found = list_checkpoints(self.checkpoints)
        if not found:
            if is_rank_zero():
                self.log.cut_back(0)
            return False
        self.state = TrainState(**load_checkpoint(self.engine, found[0])["vtrim"])
        if is_rank_zero():
            self.log.cut_back(self.state.step)
        barrier()
        return True

    def best_heldout(self) -> dict[str, Any]:
        """The held-out entry of the kept weights."""
        return self.state.best or self.state.heldout

    def total_steps(self) -> int | None:
        """The last optimiser step, or None when only time bounds the run."""
        s = self.settings
        epochs = s.epochs if s.epochs or s.max_minutes or s.max_steps else 1
        by_epochs = epochs * self.feeder.plan.steps_per_epoch if epochs else None
        bounds = [b for b in (by_epochs, s.max_steps) if b]
        return min(bounds) if bounds else None

    def is_done(self) -> bool:
        """Whether the steps or the time of the run are used up."""
        return self._fraction() >= 1.0

    def run(self, progress: Progress) -> bool:
        """Trains; False when a signal stopped it (the state is saved, run again to go on)."""
        previous = {s: signal.signal(s, self._on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
        begun, earlier = time.monotonic(), self.state.seconds
        try:
            fraction = self._fraction()
            while fraction < 1.0:
                self._step(fraction)
                self.state.seconds = earlier + time.monotonic() - begun
                fraction = self._fraction()
                progress(self.state.step, min(1.0, fraction), self._line())
                if self._agree(self._stop_signal):
                    self._save()
                    return False
                if self.state.step % self.settings.eval_every == 0:
                    self._evaluate()
                if self.state.step % self.settings.save_every == 0:
                    self._save()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        if self.state.heldout.get("step") != self.state.step:
            self._evaluate()
        self._save()
        return True

    def _on_signal(self, number: int, _frame: Any) -> None:
        self._stop_signal = number

    def _agree(self, value: float) -> float:
        """The largest value among the processes, so that all take the same turn."""
        if self.world == 1:
            return value
        shared = torch.tensor(float(value), device=self.device)
        dist.all_reduce(shared, op=dist.ReduceOp.MAX)
        return float(shared)

    def _fraction(self) -> float:
        """How much of the run is done, 0 to 1: by steps, or by time where that is further."""
        total, minutes = self.total_steps(), self.settings.max_minutes
        by_steps = self.state.step / total if total else 0.0
        by_time = self._agree(self.state.seconds) / (60 * minutes) if minutes else 0.0
        return max(by_steps, by_time)

    def _rate_factor(self, fraction: float) -> float:
        """Share of the peak rates: linear warm-up, then cosine down to ``min_lr_ratio``."""
        s = self.settings
        if fraction < s.warmup:
            total = self.total_steps()
            first = 1 / total if total else s.warmup / 10
            return max(fraction, min(first, s.warmup)) / s.warmup
        done = (fraction - s.warmup) / max(1e-9, 1 - s.warmup)
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        return s.min_lr_ratio + (1 - s.min_lr_ratio) * cosine

    def _step(self, fraction: float) -> None:
        """One optimiser step: this process's micro-batches, then the update."""
        factor = self._rate_factor(fraction)
        groups = self.engine.optimizer.param_groups
        for group, peak in zip(groups, self._peak_rates, strict=True):
            group["lr"] = peak * factor
        work = self.feeder.work(self.state.step)
        # DeepSpeed averages over processes and accumulation steps; N already counts them all
        scale = self.world * self.accum
        coefficients = step_coefficients(work.divisors, self.settings.decay) * scale
        sums: list[StepSums] = []
        for bins in work.micro:
            rows, features = self.feeder.batch(bins)
            out = self.engine(rows, features, coefficients)
            self.engine.backward(out.total)
            self.engine.step()
            sums.append(out)
        self.state.step += 1
        self.state.tokens += work.tokens
        self._record(sums, work.divisors, self.settings.learning_rate * factor)

    def _record(self, sums: list[StepSums], divisors: Tensor, rate: float) -> None:
        """Logs the step's loss over all processes."""
        loss = torch.stack([s.loss.detach() for s in sums]).sum(0)
        correct = torch.stack([s.correct for s in sums]).sum(0)
        both = torch.stack([loss.double(), correct.double()])
        if self.world > 1:
            dist.all_reduce(both)
        count = divisors.clamp(min=1)
        weights = step_coefficients(divisors, self.settings.decay)
        self._last = {
            "kind": "train",
            "step": self.state.step,
            "loss": float((weights * both[0]).sum()),
            "lr": rate,
            "tokens": self.state.tokens,
            "seconds": round(self.state.seconds, 3),
            "accuracy": [round(v, 5) for v in (both[1] / count).tolist()],
        }
        if is_rank_zero():
            self.log.append(self._last)

    def _evaluate(self) -> None:
        if not self.split.heldout:
            self.state.heldout = self.state.best = {"step": self.state.step}
            self.best.save(self.model.draft, self.state.step, self.settings.zero_stage)
            return
        measured = evaluate(self.model, self.feeder.heldout(), self.settings.decay)
        entry = {"kind": "heldout", "step": self.state.step, **_rounded(measured)}
        entry["seconds"] = round(self.state.seconds, 3)
        self.state.heldout = entry
        if is_rank_zero():
            self.log.append(entry)
        if measured.joint_prefix > self.state.best.get("joint_prefix", -1.0):
            self.state.best = entry
            self.best.save(self.model.draft, self.state.step, self.settings.zero_stage)

    def _save(self) -> None:
        state = {"vtrim": self.state.to_dict()}
        keep = self.settings.keep_checkpoints
        save_checkpoint(self.engine, self.checkpoints, self.state.step, state, keep)
        if is_rank_zero():
            self.best.prune(keep + 1)

    def _line(self) -> str:
        found = self.state.heldout.get("joint_prefix")
        held = f"  held-out joint prefix {found:.3f}" if found else ""
        rate = self.state.tokens / max(1e-9, self.state.seconds)
        return f"loss {self._last['loss']:.3f}{held}  {rate:,.0f} tok/s"


def _rounded(measured: HeldOut) -> dict[str, Any]:
    values = vars(measured)
    return {
        name: [round(v, 5) for v in value] if isinstance(value, list) else round(value, 5)
        for name, value in values.items()
    }
