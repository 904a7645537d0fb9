"""Where a run's target states come from: the target, the memory, or the feature store."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from vtrim.errors import InputError
from vtrim.models.target import Target
from vtrim.training.batch import TrainSample, to_device
from vtrim.training.estimate import GIB, shown
from vtrim.training.run_plan import PlannedRun
from vtrim.training.settings import TrainSettings
from vtrim.training.states import MemoryStates, OnlineStates, SampleStates, StateSource
from vtrim.training.store import FeatureStore, free_bytes
from vtrim.training.store_format import sample_key

Note = Callable[[str], None]


class DiskStates:
    """States of the store; what it lacks is computed by ``inner`` and added to it."""

    def __init__(self, inner: StateSource, store: FeatureStore, device: torch.device) -> None:
        self.inner = inner
        self.store = store
        self.device = device

    @property
    def held(self) -> Container[object]:
        """Whether the states of a sample are there, by its key."""
        return self.store

    def states(
        self, samples: Sequence[TrainSample], *, heldout: bool = False
    ) -> list[SampleStates]:
        """See ``StateSource``.

        Raises:
            InputError: the target's states of a sample are not finite; they are not written.
        """
        keys = [sample_key(sample) for sample in samples]
        known = {key: found for key in keys if (found := self.store.get(key)) is not None}
        missing = {k: s for k, s in zip(keys, samples, strict=True) if k not in known}
        if missing:
            computed = self.inner.states(list(missing.values()), heldout=heldout)
            for (key, sample), state in zip(missing.items(), computed, strict=True):
                if not state.is_finite():
                    raise self._refused(sample, heldout)
                self.store.put(key, state)
                known[key] = state
        return [_on(known[key], self.device) for key in keys]

    def _refused(self, sample: TrainSample, heldout: bool) -> InputError:
        kind = "held-out" if heldout else "training"
        return InputError(
            f"{self.store.target}: its states of {kind} sample {sample.index} (counted from 0) are "
            f"not finite and are not written to {self.store.folder}. Mend the sample or the "
            "target, or try --dtype fp32."
        )

    def close(self) -> None:
        """Writes what is still in memory."""
        self.store.close()


def _on(states: SampleStates, device: torch.device) -> SampleStates:
    if states.aux.device == device:
        return states
    return SampleStates(**{name: to_device(value, device) for name, value in vars(states).items()})


def make_source(
    target: Target,
    settings: TrainSettings,
    folder: Path | None,
    identity: dict[str, Any],
    told: dict[str, Any] | None = None,
) -> DiskStates | MemoryStates:
    """The run's source: with ``folder`` the store there, else memory, over the target itself.

    told: what else its manifest says, for people.

    Raises:
        MismatchError: the folder holds states of another target, other layers or dtype.
        InputError: a shard in it is cut, edited or foreign.
    """
    online = OnlineStates(target)
    if folder is None:
        return MemoryStates(online, int(settings.cache_gib * GIB))
    own = {**identity, "aux_layer_ids": list(target.aux_layer_ids), "dtype": settings.dtype}
    store = FeatureStore(folder, own, {"target": target.name, **(told or {})})
    return DiskStates(online, store, target.device)


def prepare_source(
    source: DiskStates | MemoryStates, target: Target, run: PlannedRun, note: Note
) -> None:
    """Says what is cached and what it takes to cache the rest; frees what is not needed then.

    Raises:
        InputError: the disk cannot hold what is missing, or a shard is damaged.
    """
    if isinstance(source, MemoryStates):
        source.keeps_training = not run.meets_samples_once  # held-out ones come at every check
        return
    folder = source.store.folder
    if run.missing:
        _check_space(folder, run, note)
    read = _verify(source.store, run.samples)
    note(
        f"target states: {len(run.samples) - len(run.missing):,} samples cached in {folder} "
        f"({shown(read)} checked), {len(run.missing):,} to compute"
    )
    if run.frees_blocks:
        drop_blocks(target)
        note("the target's blocks are freed: its embedding, final norm and head are all that runs")


def drop_blocks(target: Target) -> None:
    """Frees the decoder blocks' weights; a forward fails from then on."""
    for block in target.layers:
        block.to("meta")


def _check_space(folder: Path, run: PlannedRun, note: Note) -> None:
    size, free = run.disk()["feature_cache"], free_bytes(folder)
    if size > free:
        raise InputError(
            f"--cache-features {folder}: the states of {len(run.missing):,} samples need "
            f"{shown(size)}, {shown(free)} are free there. Free some space, name another disk, or "
            "leave the option out."
        )
    note(f"target states to write: {shown(size)}; {shown(free)} are free in {folder}")


def _verify(store: FeatureStore, keys: Iterable[str]) -> int:
    """Each process checks its part of the shards; all raise what one finds. Bytes of all parts."""
    world = dist.get_world_size() if dist.is_initialized() else 1
    rank = dist.get_rank() if world > 1 else 0
    found: int | str
    try:
        found = store.verify(sorted(keys), rank, world)
    except InputError as error:
        found = str(error)
    results: list[Any] = [found]
    if world > 1:
        results = [None] * world
        dist.all_gather_object(results, found)
    for result in results:
        if isinstance(result, str):
            raise InputError(result)
    return sum(results)
