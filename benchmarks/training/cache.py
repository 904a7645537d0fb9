"""What writing target states to disk costs, beside the target's forward and the disk itself.

    OMP_NUM_THREADS=1 python benchmarks/training/cache.py [--samples 48] [--rounds 3] [--folder DIR]

Four things in alternating rounds, the fastest of each (the forward in CPU time, the disk in wall
time too): the target's forward alone (SmolLM2, bf16,
the demo's conversations), the same with the store (until the last byte is synced), the states put
into the store without a forward, and as many plain bytes written and synced in pieces of a
shard's size. Then everything is read back, with and without the checksums.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from vtrim.chat.read import read_conversations
from vtrim.chat.render import Renderer
from vtrim.chat.skips import SkipLog
from vtrim.config import recipes_folder
from vtrim.models.hub import load_tokenizer
from vtrim.models.target import load_target
from vtrim.training.batch import TrainSample
from vtrim.training.data import split_samples
from vtrim.training.states import OnlineStates, SampleStates
from vtrim.training.store import SHARD_BYTES, FeatureStore
from vtrim.training.store_format import sample_key
from vtrim.training.store_source import DiskStates

HERE = Path(__file__).parent
BATCH = 4
PIECE = 1 << 20
IDENTITY = {"target_config": "", "target_weights": "", "aux_layer_ids": [], "dtype": "bf16"}


def demo_samples(count: int) -> list[TrainSample]:
    """The first ``count`` training samples of the demo."""
    renderer = Renderer(load_tokenizer("smollm2"))
    replies = recipes_folder() / "demo" / "replies.jsonl.gz"
    conversations = read_conversations([replies], skipped=SkipLog())
    rendered = (s for c in conversations for s in renderer.samples(c))
    return split_samples(rendered, "exact").train[:count]


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Wall time and CPU time of one call, of all its threads."""
    begun, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begun, time.process_time() - used


class Bench:
    """The target, the samples, and a folder that is empty before each piece of work."""

    def __init__(self, samples: list[TrainSample], folder: Path) -> None:
        self.online = OnlineStates(load_target("smollm2", dtype=torch.bfloat16))
        self.batches = [samples[i : i + BATCH] for i in range(0, len(samples), BATCH)]
        self.folder = folder
        self.known = {
            sample_key(s): state
            for batch in self.batches
            for s, state in zip(batch, self.online.states(batch), strict=True)
        }
        self.nbytes = sum(state.nbytes for state in self.known.values())
        self.copies = max(1, (1 << 30) // self.nbytes)  # about a GiB for the disk alone
        aux = (state.aux.flatten().view(torch.uint8) for state in self.known.values())
        whole = torch.cat(list(aux)).repeat(1 + SHARD_BYTES // self.nbytes * 2)
        self.sample = memoryview(whole[:SHARD_BYTES].numpy())

    def forward(self) -> None:
        """The target alone."""
        for batch in self.batches:
            self.online.states(batch)

    def cached(self) -> None:
        """The target, and the store that is closed at the end."""
        store = self._store()
        source = DiskStates(self.online, store, torch.device("cpu"))
        for batch in self.batches:
            source.states(batch)
        store.close()

    def put(self) -> None:
        """About a GiB of known states into the store."""
        store = self._store()
        for copy in range(self.copies):
            for key, state in self.known.items():
                store.put(f"{key}{copy}", state)
        store.close()

    def plain(self) -> None:
        """The same bytes as ``put`` writes, in files of a shard's size, and nothing else."""
        number, left = 0, self.copies * self.nbytes
        while left > 0:
            with (self.folder / f"plain-{number}").open("wb", buffering=0) as file:
                for start in range(0, min(left, SHARD_BYTES), PIECE):
                    file.write(self.sample[start : start + PIECE])
                os.fsync(file.fileno())
            left, number = left - SHARD_BYTES, number + 1

    def read(self, *, verify: bool) -> None:
        """What ``put`` wrote, copied as a batch copies it."""
        store = self._store()
        keys = [f"{key}{copy}" for copy in range(self.copies) for key in self.known]
        if verify:
            store.verify(keys)
            return
        for key in keys:
            found = store.get(key)
            assert isinstance(found, SampleStates)  # noqa: S101  (a benchmark's own check)
            found.aux.clone(), found.hidden.clone()

    def _store(self) -> FeatureStore:
        return FeatureStore(self.folder, IDENTITY)

    def run(self, name: str) -> tuple[float, float]:
        """Wall and CPU seconds of one piece of work in an empty folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        return seconds(getattr(self, name))


def main() -> None:
    """Prints and stores the rates and their ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    samples = demo_samples(options.samples)
    tokens = sum(sample.ids.size for sample in samples)
    with tempfile.TemporaryDirectory(dir=options.folder) as work:
        bench = Bench(samples, Path(work) / "store")
        names = ("forward", "cached", "plain", "put")
        rounds = [{name: bench.run(name) for name in names} for _ in range(options.rounds)]
        wall = {name: min(times[name][0] for times in rounds) for name in names}
        cpu = {name: min(times[name][1] for times in rounds) for name in names}
        written = bench.copies * bench.nbytes
        reading = min(seconds(lambda: bench.read(verify=False)) for _ in range(3))
        checking = min(seconds(lambda: bench.read(verify=True)) for _ in range(3))
    result = {
        "bytes_a_token": round(bench.nbytes / tokens),
        "forward_tokens_per_cpu_second": round(tokens / cpu["forward"], 1),
        "forward_and_store_tokens_per_cpu_second": round(tokens / cpu["cached"], 1),
        "share_of_the_forward": round(cpu["forward"] / cpu["cached"], 3),
        "disk_mib_per_second": round(written / wall["plain"] / 2**20),
        "store_mib_per_second": round(written / wall["put"] / 2**20),
        "disk_mib_per_cpu_second": round(written / cpu["plain"] / 2**20),
        "store_mib_per_cpu_second": round(written / cpu["put"] / 2**20),
        "read_mib_per_cpu_second": round(written / reading[1] / 2**20),
        "check_mib_per_cpu_second": round(written / checking[1] / 2**20),
        "load_average": round(os.getloadavg()[0], 1),
        "torch": torch.__version__,
    }
    (HERE / "last_cache_result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))  # noqa: T201


if __name__ == "__main__":
    main()
