"""The training loop: DeepSpeed from the first line, resumable at every checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from vtrim.models.draft import Eagle3Draft
from vtrim.training.checkpoint import (
    barrier,
    broadcast,
    is_rank_zero,
    kept_states,
    save_checkpoint,
)
from vtrim.training.data import Split
from vtrim.training.decode_check import DecodeCheck
from vtrim.training.feeder import Feeder, Work
from vtrim.training.guard import (
    bad_samples,
    guard_plain_optimizer,
    poisoned,
    refuse_applied,
    refuse_more,
)
from vtrim.training.log import MetricsLog
from vtrim.training.optimizer import Rates, make_engine
from vtrim.training.resume import find_resume_point
from vtrim.training.schedule import Schedule
from vtrim.training.selection import Selection
from vtrim.training.settings import TrainSettings
from vtrim.training.signals import StopSignal
from vtrim.training.state import TrainState
from vtrim.training.teacher import Teacher
from vtrim.training.ttt import StepSums, TTTModel, step_coefficients
from vtrim.training.weights import BestWeights

Progress = Callable[[int, float, str], None]
"""Told after each step: its number, the share of the run that is done, and a line about it."""


@dataclass(frozen=True)
class StepTotals:
    """What all processes know after a step.

    loss, correct and rows: [S] sums over all micro-batches; norm: of the gradient, before
    clipping; stop: a process was told to end; seconds [s] of training and whether a checkpoint is
    due by the clock, as the first process has them.
    """

    loss: Tensor
    correct: Tensor
    rows: Tensor
    norm: float
    stop: bool
    seconds: float
    save_due: bool


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
        decode: DecodeCheck | None = None,
    ) -> None:
        self.settings = settings
        self.checkpoints = folder / "checkpoints"
        self.world = dist.get_world_size()
        self.device = str(teacher.target.device)
        self.accum = int(ds_config["gradient_accumulation_steps"])
        self.feeder = Feeder(
            split,
            teacher,
            settings,
            rank=dist.get_rank(),
            world=self.world,
            micro_batch=int(ds_config["train_micro_batch_size_per_gpu"]),
            accum=self.accum,
        )
        model = TTTModel(draft, settings, teacher.logits)
        self.schedule = Schedule(settings, self.feeder.plan.steps_per_epoch)
        self._point = find_resume_point(self.checkpoints)
        config = self._point.config(ds_config, settings.optimizer)
        self.engine = make_engine(model, settings, config, self.schedule.total_steps)
        guard_plain_optimizer(self.engine)
        self.rates = Rates(self.engine)
        self.best = BestWeights(folder / "best")
        self.selection = Selection(model, self.feeder, settings, self.best, decode)
        self.log = MetricsLog(folder / "metrics.jsonl", self.engine.monitor)
        self.state = TrainState()
        self.check_start = False  # whether the draft is measured before its first step, too
        self._saved_step, self._saved_at = -1, time.monotonic()
        self._last: dict[str, Any] = {}

    def resume(self, note: Callable[[str], None]) -> bool:
        """Continues from the newest whole checkpoint, if there is one; says what was not whole."""
        point = self._point
        point.load(self.engine, note)
        if point.checkpoint is not None:
            self.state = TrainState(**point.listing["state"])
            self._saved_step = self.state.step
            self._forget_lost_best(note)
        if is_rank_zero():
            self.log.cut_back(self.state.step, self.state.checked)
        barrier()
        return point.checkpoint is not None

    def _forget_lost_best(self, note: Callable[[str], None]) -> None:
        """Chooses anew where the best weights, which the state names, are not whole."""
        problem = self.best.problem(self.state.best["step"]) if self.state.best else None
        problem = broadcast(problem)
        if problem is None:
            return
        note(f"the best draft so far is lost: {problem}; the best from here on is kept")
        self.state.best, self.state.worse = {}, 0
        # this step's check, if there was one, is made again: a finished run has its last weights
        self.state.checked = min(self.state.checked, self.state.step - 1)
        self._saved_step = -1

    def total_steps(self) -> int | None:
        """The last optimiser step, or None when only time bounds the run."""
        return self.schedule.total_steps

    def is_done(self) -> bool:
        """Whether steps, time or patience are used up."""
        return self.state.stopped_early or self._fraction() >= 1.0

    def run(self, progress: Progress) -> bool:
        """Trains; False when a signal stopped it (the state is saved, run again to go on)."""
        begun = time.monotonic() - self.state.seconds
        save_due = False
        with StopSignal() as signals:
            while True:
                checked = self._check_when_due()
                if self.is_done():
                    self._save()
                    return True
                if checked and self._any(signals.received > 0):  # a check may have been long
                    self._save()
                    return False
                if save_due or self.state.step % self.settings.save_every == 0:
                    self._save()
                totals = self._step(signals, begun)
                progress(self.state.step, self._fraction(), self._line())
                save_due = totals.save_due
                if totals.stop:  # a check that is due waits for the resumption
                    self._save()
                    return False

    def _fraction(self) -> float:
        return self.schedule.fraction(self.state.step, self.state.seconds)

    def _step(self, signals: StopSignal, begun: float) -> StepTotals:
        """One optimiser step: this process's micro-batches, then the update."""
        rates = self.rates.set(self.schedule.rate_factor(self._fraction()))
        work = self.feeder.work(self.state.step)
        # DeepSpeed averages over processes and accumulation steps; N already counts them all
        scale = self.world * self.accum
        coefficients = step_coefficients(work.divisors, self.settings.decay) * scale
        sums: list[StepSums] = []
        counts: list[tuple[int, ...]] = []
        for bins, seed in zip(work.micro, work.seeds, strict=True):
            rows, features = self.feeder.batch(bins, seed)
            out = self.engine(rows, features, coefficients)
            self.engine.backward(poisoned(out.total))
            self.engine.step()
            sums.append(out)
            counts.append(rows.counts)
        totals = self._gather(sums, counts, signals.received, time.monotonic() - begun)
        self.state.step += 1
        self.state.tokens += work.tokens
        self.state.seconds = totals.seconds
        if self.engine.was_step_applied():
            self._record(totals, work.divisors, rates)
        else:
            self._skip(work, [s.total.detach() for s in sums])
        return totals

    def _gather(
        self, sums: list[StepSums], counts: list[tuple[int, ...]], stop: int, seconds: float
    ) -> StepTotals:
        """Sums over processes and what they agree on: the one synchronisation of a step."""
        loss = torch.stack([s.loss.detach() for s in sums]).sum(0).double()
        correct = torch.stack([s.correct for s in sums]).sum(0).double()
        rows = torch.tensor(counts, dtype=torch.float64).sum(0).to(loss.device)
        norm = self.engine.get_global_grad_norm()
        minutes = self.settings.save_minutes
        due = minutes is not None and time.monotonic() - self._saved_at >= 60 * minutes
        once = torch.tensor([seconds, due], dtype=torch.float64, device=loss.device)
        once = torch.cat((torch.as_tensor(0.0 if norm is None else norm).to(once).view(1), once))
        if not is_rank_zero():
            once = torch.zeros_like(once)
        each = torch.tensor([stop > 0], dtype=torch.float64, device=loss.device)
        shared = torch.cat((loss, correct, rows, once, each))
        if self.world > 1:
            dist.all_reduce(shared)
        values = shared.cpu()
        loss, correct, rows = values[:-4].view(3, -1)
        norm, seconds, due, stop = values[-4:].tolist()
        return StepTotals(loss, correct, rows, norm, stop > 0, seconds, due > 0)

    def _record(self, totals: StepTotals, divisors: Tensor, rates: dict[str, float]) -> None:
        """Logs the step's loss over all processes, and its learning rates.

        Raises:
            InputError: loss or norm is not finite, and yet the step was applied.
        """
        weights = step_coefficients(divisors.cpu(), self.settings.decay)
        loss = float((weights * totals.loss).sum())
        refuse_applied(self.state.step, loss, totals.norm)
        self._last = {
            "kind": "train",
            "step": self.state.step,
            "loss": loss,
            **rates,
            "grad_norm": totals.norm,
            "tokens": self.state.tokens,
            "seconds": round(self.state.seconds, 3),
            "accuracy": [round(v, 5) for v in (totals.correct / totals.rows.clamp(min=1)).tolist()],
        }
        if is_rank_zero():
            self.log.append(self._last)

    def _skip(self, work: Work, losses: list[Tensor]) -> None:
        """Counts a step that DeepSpeed left out because it was not finite.

        Raises:
            InputError: there were more such steps than allowed.
        """
        self.state.bad_steps += 1
        samples = bad_samples(work.micro, losses)
        if is_rank_zero():
            self.log.append({"kind": "skipped", "step": self.state.step, "samples": samples})
        refuse_more(self.state.step, self.state.bad_steps, self.settings.max_bad_steps, samples)

    def _check_when_due(self) -> bool:
        """Measures the draft each ``eval_every`` steps and at the end, once for each step."""
        step = self.state.step
        due = step % self.settings.eval_every == 0 or self.is_done()
        if (step == 0 and not self.check_start) or step == self.state.checked or not due:
            return False
        entries = self.selection.check(self.state)
        if self.state.stopped_early:
            entries.append(
                {"kind": "stop", "step": step, "checks_without_better": self.state.worse}
            )
        for entry in entries if is_rank_zero() else ():
            self.log.append(entry)
        return True

    def _any(self, said: bool) -> bool:
        """Whether any process says so. All call."""
        flag = torch.tensor(float(said), device=self.device)
        if self.world > 1:
            dist.all_reduce(flag)
        return bool(flag > 0)

    def _save(self) -> None:
        """A checkpoint of this step, unless there is one; drops weights that none names."""
        if self.state.step in (0, self._saved_step):
            return
        keep = self.settings.keep_checkpoints
        about = {"processes": self.world, "settings": self.settings.to_dict()}
        save_checkpoint(self.engine, self.checkpoints, self.state.to_dict(), keep, about)
        self._saved_step, self._saved_at = self.state.step, time.monotonic()
        if is_rank_zero():
            self.best.prune({s["best"].get("step", 0) for s in kept_states(self.checkpoints)})

    def _line(self) -> str:
        loss, held = self._last.get("loss"), self.state.heldout.get("joint_prefix")
        parts = [] if loss is None else [f"loss {loss:.3f}"]
        parts += [] if held is None else [f"held-out joint prefix {held:.3f}"]
        if self.state.decoded:
            parts.append(f"decoded {self.state.decoded['acceptance_length']:.3f}")
        parts.append(f"{self.state.tokens / max(1e-9, self.state.seconds):,.0f} tok/s")
        return "  ".join(parts)
