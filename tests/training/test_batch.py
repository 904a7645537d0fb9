"""What a micro-batch is made of: layout, packing, noise, and the same work for any world size."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from vtrim.training.batch import Features, Rows, TrainSample, make_rows
from vtrim.training.data import Split
from vtrim.training.feeder import Feeder, with_noise
from vtrim.training.settings import TrainSettings

WIDTH = 12


def _samples(count: int) -> list[TrainSample]:
    rng = np.random.default_rng(1)
    lengths = rng.integers(6, 40, count).tolist()
    return [
        TrainSample(rng.integers(0, 99, n), np.arange(n) >= 3, index)
        for index, n in enumerate(lengths)
    ]


class _Teacher:
    """States that are the number of their sample."""

    target = SimpleNamespace(device=torch.device("cpu"))

    def features(self, bins: Any, _rows: Rows, *, heldout: bool) -> Features:
        del heldout
        aux = [
            torch.full((s.ids.size, WIDTH), 1.0 + s.index) for documents in bins for s in documents
        ]
        nothing = torch.zeros(0)
        return Features(nothing, torch.cat(aux)[None], nothing, nothing, nothing, nothing)


def _feeder(rank: int = 0, world: int = 1, accum: int = 1, **changes: Any) -> Feeder:
    samples = _samples(40)
    return Feeder(
        Split(samples, samples[:5], 0),
        _Teacher(),  # type: ignore[arg-type]
        TrainSettings(**{"ttt_steps": 3, "max_length": 64, **changes}),
        rank=rank,
        world=world,
        micro_batch=2,
        accum=accum,
    )


def test_documents_lie_end_to_end_and_each_begins_at_its_own_start() -> None:
    one = TrainSample(np.array([5, 6, 7]), np.array([False, True, True]), 0)
    two = TrainSample(np.array([8, 9]), np.array([True, True]), 1)
    three = TrainSample(np.array([1, 2, 3, 4]), np.array([False, True, True, True]), 2)
    rows = make_rows([[one, two], [three]], 2, "exact")
    assert rows.ids.tolist() == [[5, 6, 7, 8, 9, 1, 2, 3, 4]]
    assert rows.start.tolist() == [[0, 0, 0, 3, 3, 5, 5, 5, 5]]
    assert rows.position.tolist() == [[0, 5, 6]]
    assert (rows.counts, rows.length) == ((3, 1), 9)
    # states that can judge: 1, 2 of the first, 0, 1 of the second, 1, 2, 3 of the third
    assert rows.slot.tolist() == [0, 4, 5, 5]
    assert rows.step.tolist() == [0, 0, 0, 1]
    assert rows.flat.tolist() == [0, 1, 2, 4]
    assert rows.first_row.tolist() == [0, 1, 1, 1, 1, 2, 4, 4]


def test_a_gpu_takes_the_whole_layout_in_one_transfer_from_pinned_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pinned: list[Tensor] = []
    sent: list[tuple[Tensor, str, bool]] = []

    def pin(held: Tensor) -> Tensor:
        pinned.append(held.clone())
        return pinned[-1]

    def to(held: Tensor, device: str, *, non_blocking: bool = False) -> Tensor:
        sent.append((held, device, non_blocking))
        return held

    sample = TrainSample(np.array([5, 6, 7]), np.array([False, True, True]), 0)
    expected = make_rows([[sample]], 2, "exact")
    monkeypatch.setattr(Tensor, "pin_memory", pin)
    monkeypatch.setattr(Tensor, "to", to)
    rows = make_rows([[sample]], 2, "exact", "cuda")
    assert len(pinned) == len(sent) == 1
    assert sent[0][0] is pinned[0]
    assert sent[0][1:] == ("cuda", True)
    for name in ("ids", "start", "position", "flat", "step", "slot"):
        assert torch.equal(getattr(rows, name), getattr(expected, name)), name


@pytest.mark.parametrize("packing", [False, True])
def test_two_processes_do_what_one_does_with_two_accumulation_steps(packing: bool) -> None:
    changes: dict[str, Any] = {"packing": packing, "noise": 0.2}
    alone = _feeder(accum=2, **changes)
    pair = [_feeder(rank, world=2, **changes) for rank in (0, 1)]
    for number in range(2 * alone.plan.steps_per_epoch + 1):
        work, shared = alone.work(number), [feeder.work(number) for feeder in pair]
        assert work.micro == [s.micro[0] for s in shared]
        for mine, theirs in zip(work.seeds, shared, strict=True):
            assert mine == theirs.seeds[0]
        for theirs in shared:
            assert theirs.tokens == work.tokens
            assert torch.equal(theirs.divisors, work.divisors)


def test_packed_sequences_hold_no_more_than_the_longest_sample_may_have() -> None:
    feeder = _feeder(packing=True)
    lengths = [s.ids.size for s in feeder.split.train]
    work = feeder.work(0)
    filled = [sum(lengths[i] for i in documents) for documents in work.micro[0]]
    assert len(filled) == 2
    assert max(filled) <= 64
    assert max(len(documents) for documents in work.micro[0]) > 1


def test_noise_stays_within_its_share_of_the_size_of_each_state() -> None:
    aux = torch.randn(1, 50, 12) * torch.tensor([1.0, 100.0, 10_000.0]).repeat_interleave(4)
    off = (with_noise(aux, 0.1, 3) - aux).unflatten(-1, (3, 4))
    size = aux.unflatten(-1, (3, 4)).square().mean(-1, keepdim=True).sqrt()
    share = off / size
    assert share.abs().max() <= 0.1 + 1e-4
    assert share.abs().mean() == pytest.approx(0.05, rel=0.1)  # half of the half width
    assert abs(float(share.mean())) < 0.01


def _noise(feeder: Feeder, number: int) -> list[Tensor]:
    work = feeder.work(number)
    pairs = zip(work.micro, work.seeds, strict=True)
    return [feeder.batch(bins, seed)[1].aux - feeder.batch(bins)[1].aux for bins, seed in pairs]


def test_noise_depends_on_seed_step_slot_and_epoch_alone() -> None:
    feeder, again = _feeder(noise=0.1, accum=2), _feeder(noise=0.1, accum=2)
    pass_ = feeder.plan.steps_per_epoch
    late = _noise(again, 2)  # asked for first, as after a resume
    found = {n: _noise(feeder, n) for n in (0, 1, 2, 2 + pass_)}
    for ours, theirs in zip(found[2], late, strict=True):
        assert torch.equal(ours, theirs)
    seeds = [seed for n in range(2 * pass_) for seed in feeder.work(n).seeds]
    assert len(set(seeds)) == len(seeds)
    assert set(seeds).isdisjoint(_feeder(noise=0.1, accum=2, seed=7).work(0).seeds)
    assert all(noise.abs().max() > 0 for noise in found[0])


def test_no_noise_is_the_default_and_held_out_states_never_have_any() -> None:
    assert not any(noise.any() for noise in _noise(_feeder(), 0))
    feeder = _feeder(noise=0.5)
    for _, features, _ in feeder.heldout():
        assert torch.equal(features.aux, features.aux.round())


def test_the_stored_states_are_not_written_over_by_noise() -> None:
    aux = torch.ones(1, 4, 6)
    with_noise(aux, 0.5, 1)
    assert torch.equal(aux, torch.ones(1, 4, 6))


def test_the_padding_of_a_pass_is_told() -> None:
    feeder = _feeder()
    assert feeder.padding() == 0  # on a CPU each sample goes alone
    feeder.device = "cuda:0"
    assert 0 < feeder.padding() < 0.2
