"""What a whole run would take, put together from its data, settings and a measured speed."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vtrim.shape import DraftShape
from vtrim.training.batch import TrainSample
from vtrim.training.calibrate import Speed
from vtrim.training.data import Split
from vtrim.training.estimate import (
    FILE_BYTES,
    GIB,
    SAMPLE_BYTES,
    DataCounts,
    batch_memory,
    count_data,
    disk_bytes,
    draft_flops_of_pass,
    draft_memory,
    draft_parameters,
    forward_memory,
    shown,
    states_bytes,
    target_flops_of_pass,
)
from vtrim.training.feeder import drawn_heldout
from vtrim.training.loss import CHUNK_ELEMENTS
from vtrim.training.plan import BatchPlan
from vtrim.training.rows import teacher_positions
from vtrim.training.schedule import Schedule
from vtrim.training.settings import TrainSettings
from vtrim.training.states import CHUNK_COLUMNS
from vtrim.training.store import SHARD_BYTES
from vtrim.training.store_format import DTYPES, sample_key


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A run before it starts.

    target_parameters: of the whole target. held: whether a sample's states lie in the store, by
    key; None where the run has no store.
    """

    settings: TrainSettings
    processes: int
    shape: DraftShape
    target_shape: DraftShape
    draft_vocab_size: int
    target_parameters: int
    split: Split
    held: Container[object] | None = None

    @cached_property
    def batches(self) -> BatchPlan:
        """The run's micro-batches."""
        s = self.settings
        return BatchPlan(
            np.array([one.ids.size for one in self.split.train], dtype=np.int64),
            self.processes * s.grad_accum,
            s.micro_batch,
            s.seed,
            s.max_length if s.packing else None,
        )

    @cached_property
    def samples(self) -> dict[str, TrainSample]:
        """All samples that the run meets, by key, each once."""
        train: Iterable[int] = range(len(self.split.train))
        if self.is_short:
            numbers = range(self.steps["total_steps"] or 0)
            slots = (bins for number in numbers for bins in self.batches.step(number))
            train = sorted({i for bins in slots for documents in bins for i in documents})
        held = drawn_heldout(len(self.split.heldout), self.settings)
        found = [self.split.train[i] for i in train] + [self.split.heldout[i] for i in held]
        return {sample_key(sample): sample for sample in found}

    @property
    def is_short(self) -> bool:
        """Whether the run ends before it has met every sample."""
        total = self.steps["total_steps"]
        return total is not None and total < self.batches.steps_per_epoch

    @property
    def meets_samples_once(self) -> bool:
        """Whether no sample comes twice, so that keeping its states is of no use."""
        total = self.steps["total_steps"]
        distinct = {sample.index for sample in self.split.train}
        once = len(distinct) == len(self.split.train)  # mixing weights repeat them
        return once and total is not None and total <= self.batches.steps_per_epoch

    @cached_property
    def missing(self) -> list[TrainSample]:
        """The samples whose states are not in the store."""
        held = () if self.held is None else self.held
        return [sample for key, sample in self.samples.items() if key not in held]

    @property
    def _trained(self) -> int:
        parts = draft_parameters(self.shape, self.draft_vocab_size)
        return parts["total"] - (parts["lm_head"] if self.settings.head_init == "frozen" else 0)

    @cached_property
    def counts(self) -> DataCounts:
        """Sums over one pass."""
        s = self.settings
        pairs = ((one.ids.size, one.loss_mask) for one in self.split.train)
        return count_data(pairs, s.ttt_steps, s.mask_alignment)

    @cached_property
    def steps(self) -> dict[str, int | None]:
        """Optimiser steps of a pass, and of the run (None: bounded by time alone)."""
        self.batches.check()
        a_pass = self.batches.steps_per_epoch
        return {
            "steps_per_pass": a_pass,
            "total_steps": Schedule(self.settings, a_pass).total_steps,
        }

    def states_bytes(self, samples: Iterable[TrainSample]) -> int:
        """Bytes of the states of these samples."""
        width, value = self.target_shape.hidden_size, DTYPES[self.settings.dtype].itemsize
        return sum(
            states_bytes(s.ids.size, teacher_positions(s.loss_mask).size, width, value)
            for s in samples
        )

    @property
    def _own_bytes(self) -> int:
        """Bytes of the states that a process meets in a pass."""
        width, value = self.target_shape.hidden_size, DTYPES[self.settings.dtype].itemsize
        return states_bytes(self.counts.tokens, self.counts.states, width, value) // self.processes

    def memory(self, device: str) -> dict[str, int]:
        """Bytes a process needs, by part, on a device of that kind (cpu, cuda)."""
        chunk_elements = CHUNK_ELEMENTS.get(device, CHUNK_ELEMENTS["cuda"])
        s, value = self.settings, DTYPES[self.settings.dtype].itemsize
        parameters = draft_parameters(self.shape, self.draft_vocab_size)["total"]
        table = 2 * self.target_shape.hidden_size * self.target_shape.target_vocab_size
        whole = min(self.target_parameters, table)  # embedding and head
        blocks = 0 if self.frees_blocks else self.target_parameters - whole
        share = self.processes if s.shard_target else 1
        parts = {
            "target": value * (whole + blocks // share),
            **draft_memory(parameters, self._trained, s, self.processes),
            **batch_memory(self.shape, self.draft_vocab_size, self.counts, s, chunk_elements),
            "target_forward": 0
            if self.frees_blocks
            else forward_memory(self.target_shape, self.counts, s, CHUNK_COLUMNS),
            "states_kept": min(int(s.cache_gib * GIB), self._own_bytes)
            if self.held is None
            else 2 * min(SHARD_BYTES, self.states_bytes(self.missing)),
        }
        return {**parts, "total": sum(parts.values())}

    @property
    def frees_blocks(self) -> bool:
        """Whether the target's decoder blocks are needed no more."""
        s = self.settings
        return (
            self.held is not None and not self.missing and not s.decode_eval and not s.shard_target
        )

    def memory_line(self, device: str) -> str:
        """The memory estimate for people, the largest parts named."""
        parts = self.memory(device)
        total = parts.pop("total")
        largest = sorted(parts, key=lambda name: -parts[name])[:4]
        named = ", ".join(f"{name.replace('_', ' ')} {shown(parts[name])}" for name in largest)
        return f"memory, about: {shown(total)} a process beside the libraries ({named}, ...)"

    def disk(self) -> dict[str, int]:
        """Bytes on disk, by part; ``feature_cache``: what is still to be written."""
        parameters = draft_parameters(self.shape, self.draft_vocab_size)["total"]
        parts = disk_bytes(parameters, self._trained, self.settings)
        parts["feature_cache"] = 0
        if self.held is not None and self.missing:
            headers = SAMPLE_BYTES * len(self.missing) + FILE_BYTES
            parts["feature_cache"] = self.states_bytes(self.missing) + headers
        return {**parts, "total": sum(parts.values())}

    def flops(self) -> dict[str, int]:
        """FLOPs of one optimiser step on the average, all processes together, by part."""
        steps = self.steps["steps_per_pass"] or 1
        counts = self.counts
        parts = {
            **target_flops_of_pass(self.target_shape, counts),
            **draft_flops_of_pass(
                self.shape, self.draft_vocab_size, counts, self.settings.ttt_steps
            ),
        }
        parts = {name: flops // steps for name, flops in parts.items()}
        return {**parts, "total": sum(parts.values())}

    def seconds(self, speed: Speed) -> dict[str, Any]:
        """A time estimate [s]: held-out checks, checkpoints and communication are left out."""
        steps, flops = self.steps, self.flops()
        target = flops["target"] + flops["target_head"]
        draft_s = (flops["total"] - target) / (speed.step or speed.matmul) / self.processes
        shared = self.processes if self.settings.zero_stage else 1
        draft_s += speed.optimizer_s * self._trained / shared
        target_s = target / speed.matmul / self.processes
        a_pass, total = steps["steps_per_pass"] or 1, steps["total_steps"]
        minutes = self.settings.max_minutes
        limit = None if minutes is None else 60 * minutes
        found: float | None = None
        if total is not None:
            found = total * draft_s + a_pass * target_s * self._target_passes(total / a_pass)
        return {
            "draft_step_s": draft_s,
            "target_step_s": target_s,
            "seconds": min((t for t in (found, limit) if t is not None), default=None),
            "assumed": "measured here on one sample, random weights"
            if speed.step
            else "matrix products at the speed measured here: a lower bound",
            **asdict(speed),
        }

    def _target_passes(self, passes: float) -> float:
        """How many times the target's forward goes over the data in so many passes."""
        first = min(1.0, passes)
        if self.held is not None:
            return first * len(self.missing) / max(1, len(self.samples))
        lacking = 1 - min(1.0, self.settings.cache_gib * GIB / max(1, self._own_bytes))
        return first + (passes - first) * lacking
