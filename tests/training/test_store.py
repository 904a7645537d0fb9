"""Target states on disk: what is written, what is found again, what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from vtrim.errors import InputError, MismatchError
from vtrim.training.batch import TrainSample
from vtrim.training.estimate import FILE_BYTES, SAMPLE_BYTES, states_bytes
from vtrim.training.rows import teacher_positions
from vtrim.training.states import SampleStates
from vtrim.training.store import FeatureStore
from vtrim.training.store_format import DTYPES, sample_key
from vtrim.training.store_source import DiskStates

D = 8
IDENTITY = {
    "target_config": "sha256:c",
    "target_weights": "sha256:w",
    "aux_layer_ids": [2, 4, 5],
    "dtype": "fp32",
}


def make_sample(index: int, length: int = 12) -> TrainSample:
    """A sample whose ids and mask follow from its index."""
    draw = np.random.default_rng(index)
    mask = np.zeros(length, dtype=bool)
    mask[draw.integers(1, length // 2) :] = True
    return TrainSample(draw.integers(0, 1000, length), mask, index)


class Fake:
    """A target whose states follow from the sample; counts what it is asked."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.asked = 0

    def states(
        self, samples: Sequence[TrainSample], *, heldout: bool = False
    ) -> list[SampleStates]:
        del heldout
        self.asked += len(samples)
        return [self._states(sample) for sample in samples]

    def _states(self, sample: TrainSample) -> SampleStates:
        generator = torch.Generator().manual_seed(int(sample.ids.sum()))
        count = teacher_positions(sample.loss_mask).size
        return SampleStates(
            aux=torch.randn(sample.ids.size, 3 * D, generator=generator).to(self.dtype),
            hidden=torch.randn(count, D, generator=generator).to(self.dtype),
            best=torch.randint(0, 1000, (count,), generator=generator),
            log_z=torch.randn(count, generator=generator),
        )


def source(folder: Path, fake: Fake | None = None, **changes: Any) -> DiskStates:
    """A store in ``folder`` over a fake target."""
    size = changes.pop("shard_bytes", 1 << 20)
    store = FeatureStore(folder, {**IDENTITY, **changes}, {"target": "fake"}, size)
    return DiskStates(fake or Fake(), store, torch.device("cpu"))


def fill(folder: Path, count: int = 12, **changes: Any) -> list[TrainSample]:
    """Writes the states of samples 0 to count - 1."""
    samples = [make_sample(index, 6 + index) for index in range(count)]
    states = source(folder, **changes)
    for first in range(0, count, 3):
        states.states(samples[first : first + 3])
    states.close()
    return samples


def opened_and_verified(folder: Path, samples: list[TrainSample]) -> DiskStates:
    """What a run does with a store before its first step."""
    found = source(folder)
    found.store.verify(map(sample_key, samples))
    return found


def missing(states: DiskStates, samples: list[TrainSample]) -> list[TrainSample]:
    return [sample for sample in samples if sample_key(sample) not in states.held]


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("shard-*.safetensors"))


def same(one: SampleStates, other: SampleStates) -> bool:
    pairs = [(getattr(one, n), getattr(other, n)) for n in ("aux", "hidden", "best", "log_z")]
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("shard_bytes", [1, 4000, 1 << 20])
def test_what_was_written_is_read_back_to_the_bit(
    tmp_path: Path, dtype: str, shard_bytes: int
) -> None:
    samples = [make_sample(index, 5 + index) for index in range(9)]
    fake = Fake(DTYPES[dtype])
    writing = source(tmp_path, fake, dtype=dtype, shard_bytes=shard_bytes)
    fresh = [writing.states(samples[i : i + 2]) for i in range(0, 9, 2)]
    writing.close()
    assert len(shards(tmp_path)) == {1: 9, 1 << 20: 1}.get(shard_bytes, len(shards(tmp_path)))
    silent = Fake()
    found = source(tmp_path, silent, dtype=dtype).states(samples)
    assert silent.asked == 0
    expected = [states for batch in fresh for states in batch]
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))


def test_a_shard_is_an_ordinary_safetensors_file_of_four_tensors(tmp_path: Path) -> None:
    samples = fill(tmp_path, dtype="bf16")
    (path,) = shards(tmp_path)
    tensors = load_file(path)
    tokens = sum(s.ids.size for s in samples)
    states = sum(teacher_positions(s.loss_mask).size for s in samples)
    assert {n: (t.dtype, tuple(t.shape)) for n, t in tensors.items()} == {
        "aux": (torch.bfloat16, (tokens, 3 * D)),
        "hidden": (torch.bfloat16, (states, D)),
        "best": (torch.int32, (states,)),
        "log_z": (torch.float32, (states,)),
    }


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_estimate_is_the_size_of_the_tensors_and_bounds_that_of_the_files(
    tmp_path: Path, dtype: str
) -> None:
    samples = fill(tmp_path, 60, dtype=dtype)
    (path,) = shards(tmp_path)
    stored = sum(t.nbytes for t in load_file(path).values())
    size = DTYPES[dtype].itemsize
    counted = [(s.ids.size, teacher_positions(s.loss_mask).size) for s in samples]
    assert sum(states_bytes(tokens, states, D, size) for tokens, states in counted) == stored
    files = sum(p.stat().st_size for p in tmp_path.iterdir())
    assert stored < files <= stored + len(samples) * SAMPLE_BYTES + FILE_BYTES


def test_the_states_of_one_sample_take_closed_form_bytes() -> None:
    assert states_bytes(tokens=100, states=40, hidden_size=576, value_bytes=2) == (
        100 * 3 * 576 * 2 + 40 * 576 * 2 + 40 * 8
    )


def test_samples_are_known_by_ids_and_mask_not_by_place(tmp_path: Path) -> None:
    samples = fill(tmp_path)
    fake = Fake()
    again = source(tmp_path, fake)
    moved = [TrainSample(s.ids.copy(), s.loss_mask.copy(), 99 - s.index, "b") for s in samples]
    again.states(list(reversed(moved)), heldout=True)
    assert fake.asked == 0
    other = samples[0].loss_mask.copy()
    other[-1] = False
    again.states([TrainSample(samples[0].ids, other, 0)])
    assert fake.asked == 1
    assert sample_key(samples[0]) != sample_key(TrainSample(samples[0].ids, other, 0))


def test_only_what_is_missing_is_computed_and_it_is_added(tmp_path: Path) -> None:
    samples = fill(tmp_path, 6)
    more = [*samples, make_sample(50), make_sample(51)]
    fake = Fake()
    hybrid = source(tmp_path, fake)
    assert [sample_key(sample) in hybrid.held for sample in more] == [True] * 6 + [False] * 2
    found = hybrid.states([*more, more[-1]])
    assert fake.asked == 2
    assert same(found[-1], found[-2])
    hybrid.close()
    fake = Fake()
    source(tmp_path, fake).states(more)
    assert fake.asked == 0


def test_a_sample_is_found_while_its_shard_is_still_in_memory(tmp_path: Path) -> None:
    fake = Fake()
    states = source(tmp_path, fake, shard_bytes=3000)
    samples = [make_sample(index) for index in range(12)]
    for sample in samples:
        states.states([sample])
        assert sample_key(sample) in states.held
    states.states(samples)
    assert fake.asked == 12


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target_weights": "sha256:x"}, ["target weights", "sha256:x", "sha256:w"]),
        ({"target_config": "sha256:x"}, ["target config", "sha256:x", "sha256:c"]),
        ({"aux_layer_ids": [1, 4, 5]}, ["aux layer ids", "[1, 4, 5]", "[2, 4, 5]"]),
        ({"dtype": "bf16"}, ["dtype", "bf16", "fp32"]),
    ],
)
def test_states_of_another_target_layers_or_dtype_are_refused_naming_the_difference(
    tmp_path: Path, change: dict[str, Any], words: list[str]
) -> None:
    fill(tmp_path)
    with pytest.raises(MismatchError) as refused:
        source(tmp_path, **change)
    assert all(word in str(refused.value) for word in [*words, "manifest.json"])
    assert "\n" not in str(refused.value)


def _cut(path: Path) -> None:
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size - 5)


def _grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def _flip(offset: int) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[offset] ^= 1
        path.write_bytes(data)

    return flip


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _foreign(path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"aux": torch.zeros(2, 2)}, path)


@pytest.mark.parametrize(
    "damage", [_cut, _grow, _flip(-1), _flip(-9000), _flip(300), _flip(3), _empty, _foreign]
)
def test_a_damaged_shard_is_named_in_one_line(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    samples = fill(tmp_path)
    (path,) = shards(tmp_path)
    assert path.stat().st_size > 10_000
    damage(path)
    with pytest.raises(InputError) as refused:
        opened_and_verified(tmp_path, samples)
    assert str(path) in str(refused.value)
    assert "Delete it" in str(refused.value)
    assert "\n" not in str(refused.value)
    path.unlink()
    fake = Fake()
    source(tmp_path, fake).states(samples)
    assert fake.asked == len(samples)


def test_any_bit_that_is_flipped_is_found(tmp_path: Path) -> None:
    samples = fill(tmp_path, 2)
    (path,) = shards(tmp_path)
    whole = path.read_bytes()
    keys = [sample_key(sample) for sample in samples]
    expected = source(tmp_path).states(samples)
    for place in np.random.default_rng(0).integers(0, 8 * len(whole), 300):
        data = bytearray(whole)
        data[place // 8] ^= 1 << (place % 8)
        path.write_bytes(data)
        try:
            store = FeatureStore(tmp_path, IDENTITY)
            store.verify(keys)
            found = [store.get(key) for key in keys]
        except InputError:
            continue
        # a flip that is let through may have hit the padding only
        assert all(f is not None and same(f, e) for f, e in zip(found, expected, strict=True))


def test_a_shard_of_another_store_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    fill(tmp_path / "b", target_weights="sha256:other")
    (theirs,) = shards(tmp_path / "b")
    (tmp_path / "a" / theirs.name).write_bytes(theirs.read_bytes())
    with pytest.raises(InputError, match="another target"):
        source(tmp_path / "a")


def test_shards_without_their_manifest_are_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"manifest\.json: no such file, but shards"):
        source(tmp_path)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot be written"):
        source(tmp_path / "file")


def test_verification_is_shared_and_reads_only_shards_that_are_used(tmp_path: Path) -> None:
    samples = fill(tmp_path, 12, shard_bytes=1)
    store = source(tmp_path).store
    keys = [sample_key(sample) for sample in samples]
    sizes = sum(path.stat().st_size for path in shards(tmp_path))
    assert store.verify(keys) == sizes
    assert sum(store.verify(keys, part, 3) for part in range(3)) == sizes
    assert store.verify(keys[:1]) < store.verify(keys[:2]) < sizes


def test_two_stores_in_one_folder_write_shards_of_their_own(tmp_path: Path) -> None:
    one, other = source(tmp_path, shard_bytes=2000), source(tmp_path, shard_bytes=2000)
    for index in range(8):
        one.states([make_sample(index)])
        other.states([make_sample(index + 4)])
    one.close()
    other.close()
    fake = Fake()
    both = source(tmp_path, fake)
    both.states([make_sample(index) for index in range(12)])
    assert fake.asked == 0


WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from test_store import make_sample, source
states = source(Path(sys.argv[1]), shard_bytes=20_000)
for index in range(int(sys.argv[3]), int(sys.argv[4])):
    states.states([make_sample(index, 40)])
    print(index, flush=True)
states.close()
"""


def _writer(folder: Path, first: int, stop: int) -> subprocess.Popen[bytes]:
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", WRITER, str(folder), here, str(first), str(stop)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_two_processes_fill_one_store(tmp_path: Path) -> None:
    writers = [_writer(tmp_path, 0, 60), _writer(tmp_path, 40, 100)]
    for writer in writers:
        writer.communicate(timeout=120)
        assert writer.returncode == 0
    fake = Fake()
    states = source(tmp_path, fake)
    samples = [make_sample(index, 40) for index in range(100)]
    states.store.verify(map(sample_key, samples))
    found = states.states(samples)
    assert fake.asked == 0
    assert all(same(a, b) for a, b in zip(found, Fake().states(samples), strict=True))


@pytest.mark.parametrize("at", [3, 141])
def test_a_kill_in_mid_write_loses_no_whole_shard_and_leaves_no_half_one(
    tmp_path: Path, at: int
) -> None:
    writer = _writer(tmp_path, 0, 100_000)
    assert writer.stdout is not None
    for line in writer.stdout:
        if int(line) == at:
            break
    time.sleep(0.01 * (at % 7))
    writer.send_signal(signal.SIGKILL)
    rest, _ = writer.communicate()
    done = at + len(rest.split())
    samples = [make_sample(index, 40) for index in range(done)]
    fake = Fake()
    states = source(tmp_path, fake)
    lost = len(missing(states, samples))
    one = Fake().states([samples[0]])[0].nbytes
    assert lost <= 2 * (20_000 // one + 1)
    states.store.verify(map(sample_key, samples))
    found = states.states(samples)
    assert fake.asked == lost
    assert all(same(a, b) for a, b in zip(found, Fake().states(samples), strict=True))
    states.close()
    assert not missing(source(tmp_path), samples)


def test_what_a_killed_process_left_is_swept_when_it_is_old(tmp_path: Path) -> None:
    fill(tmp_path)
    old, fresh = (tmp_path / f".shard-{n}.safetensors.1.ab.tmp" for n in ("0", "1"))
    old.write_bytes(b"half")
    fresh.write_bytes(b"half")
    hour_ago = time.time() - 3600
    os.utime(old, (hour_ago, hour_ago))
    source(tmp_path)
    assert not old.exists()
    assert fresh.exists()


FULL_DISK = """
import resource, signal, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from test_store import make_sample, source
from vtrim.errors import InputError
states = source(Path(sys.argv[1]), shard_bytes=30_000)
for index in range(10):
    states.states([make_sample(index, 40)])
states.store._finish()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    for index in range(10, 40):
        states.states([make_sample(index, 40)])
    states.close()
except InputError as error:
    print(error)
"""


def test_a_write_that_fails_is_one_line_and_leaves_a_store_to_go_on_with(tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path), here],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    (line,) = done.stdout.splitlines()
    assert "cannot be written (File too large)" in line
    assert "shard-" in line
    assert not list(tmp_path.glob(".*.tmp"))
    samples = [make_sample(index, 40) for index in range(40)]
    fake = Fake()
    states = source(tmp_path, fake)
    states.store.verify(map(sample_key, samples))
    states.states(samples)
    assert 30 <= fake.asked < 40
    states.close()
    assert not missing(source(tmp_path), samples)


def test_the_manifest_says_of_what_the_states_are(tmp_path: Path) -> None:
    fill(tmp_path)
    told = json.loads((tmp_path / "manifest.json").read_text())
    assert told.pop("vtrim")
    assert told == {"format": 1, "target": "fake", **IDENTITY}
