"""A training step on cached target states against the same step on the target itself."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from vtrim.errors import InputError
from vtrim.models.draft import Eagle3Draft
from vtrim.models.target import Target
from vtrim.shape import DraftShape
from vtrim.training.batch import TrainSample, make_rows
from vtrim.training.data import Split
from vtrim.training.feeder import Feeder
from vtrim.training.run_plan import PlannedRun
from vtrim.training.settings import TrainSettings
from vtrim.training.states import MemoryStates, OnlineStates
from vtrim.training.store import free_bytes
from vtrim.training.store_format import DTYPES, sample_key
from vtrim.training.store_source import make_source, prepare_source
from vtrim.training.teacher import Teacher
from vtrim.training.ttt import TTTModel, step_coefficients

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
IDENTITY = {"target_config": "sha256:c", "target_weights": "sha256:w"}


class Step(NamedTuple):
    """What a step is for: everything that must be equal."""

    total: torch.Tensor
    losses: torch.Tensor
    gradients: list[torch.Tensor]


def make_target(dtype: torch.dtype = torch.float32) -> Target:
    torch.manual_seed(3)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=False))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6)
    return Target(model.to(dtype), "tiny")


def make_samples(count: int, seed: int = 0) -> list[TrainSample]:
    draw = np.random.default_rng(seed)
    found = []
    for index in range(count):
        length = int(draw.integers(6, 20))
        mask = np.zeros(length, dtype=bool)
        mask[draw.integers(1, 4) :] = True
        found.append(TrainSample(draw.integers(0, 40, length), mask, index))
    return found


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("the target's decoder ran")


def run_step(target: Target, source: Any, vocab: list[int], **changes: Any) -> Step:
    """One step of four samples, in two sequences, on states from ``source``."""
    settings = TrainSettings(**{"ttt_steps": 3, "dtype": "fp32", **changes})
    samples = make_samples(4)
    bins = [samples[:1], samples[1:2], samples[2:3], samples[3:]]
    ids = torch.tensor(vocab)
    shape = DraftShape.from_target_config(target.model.config.to_dict())
    torch.manual_seed(5)
    draft = Eagle3Draft(shape, ids)
    teacher = Teacher(target, ids, DTYPES[settings.dtype], source)
    rows = make_rows(bins, settings.ttt_steps, settings.mask_alignment)
    model = TTTModel(draft.to(DTYPES[settings.dtype]), settings, teacher.logits)
    coefficients = step_coefficients(torch.tensor(rows.counts), settings.decay)
    sums = model(rows, teacher.features(bins, rows), coefficients)
    sums.total.backward()
    gradients = [p.grad.float() for p in draft.parameters() if p.grad is not None]
    return Step(sums.total.detach().float(), sums.loss.detach().float(), gradients)


def equal(one: Step, other: Step) -> bool:
    assert len(one.gradients) == len(other.gradients) > 8
    pairs = [(one.total, other.total), (one.losses, other.losses)]
    pairs += list(zip(one.gradients, other.gradients, strict=True))
    return all(torch.allclose(a, b, rtol=1e-5, atol=1e-5) for a, b in pairs)


CASES = [
    ({}, [0, 3, 5, 8, 13, 21, 30]),
    ({"ttt_steps": 7}, [1, 2, 3, 4]),
    ({"mask_alignment": "eagle"}, list(range(40))),
    ({"loss": "lk-lambda", "oov": "keep"}, [0, 3, 5, 8, 13, 21, 30]),
]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_step_on_cached_states_is_the_step_online_for_any_vocabulary_and_unroll(
    tmp_path: Path, dtype: str
) -> None:
    target = make_target(DTYPES[dtype])
    settings = TrainSettings(dtype=dtype)  # type: ignore[arg-type]
    filling = make_source(target, settings, tmp_path, IDENTITY)
    filling.states(make_samples(4))
    filling.close()
    cached = make_source(target, settings, tmp_path, IDENTITY)
    for changes, vocab in CASES:
        online = run_step(target, OnlineStates(target), vocab, dtype=dtype, **changes)
        forward, target.forward = target.forward, never  # type: ignore[method-assign]
        found = run_step(target, cached, vocab, dtype=dtype, **changes)
        target.forward = forward  # type: ignore[method-assign]
        assert equal(found, online), changes


def broken_target() -> Target:
    """A target whose head gives NaN for token 39, which is in no vocabulary here."""
    target = make_target()
    with torch.no_grad():
        target.model.lm_head.weight[39] = torch.nan
    return target


@pytest.mark.parametrize("changes", [{}, {"oov": "keep"}, {"loss": "lk-alpha"}])
def test_a_target_that_gives_nan_makes_the_steps_loss_and_gradients_nan(changes: Any) -> None:
    target = broken_target()
    step = run_step(target, OnlineStates(target), [0, 3, 5, 8], **changes)
    assert step.total.isnan()
    assert all(gradient.isnan().any() for gradient in step.gradients)


def test_states_that_are_not_finite_are_refused_and_not_written(tmp_path: Path) -> None:
    samples = make_samples(3)
    whole = make_source(make_target(), TrainSettings(dtype="fp32"), tmp_path, IDENTITY)
    whole.states(samples[:1])
    whole.close()
    source = make_source(broken_target(), TrainSettings(dtype="fp32"), tmp_path, IDENTITY)
    with pytest.raises(InputError, match=r"^tiny: its states of training sample 1 .* not finite"):
        source.states(samples)
    with pytest.raises(InputError, match="of held-out sample 2 "):
        source.states(samples[2:], heldout=True)
    source.close()
    again = make_source(make_target(), TrainSettings(dtype="fp32"), tmp_path, IDENTITY)
    assert [sample_key(sample) in again.held for sample in samples] == [True, False, False]


def test_memory_computes_only_what_it_does_not_hold() -> None:
    asked: list[int] = []

    class Counting(OnlineStates):
        def states(self, samples: Any, *, heldout: bool = False) -> Any:
            asked.append(len(samples))
            return super().states(samples, heldout=heldout)

    memory = MemoryStates(Counting(make_target()), 1 << 30)
    samples = make_samples(4)
    memory.states(samples[:3])
    memory.states([*samples, samples[3]])
    memory.states(samples)
    memory.states(samples[:1], heldout=True)
    assert asked == [3, 1, 1]
    memory.close()
    assert memory.used == 0


def make_split() -> Split:
    return Split(make_samples(10), make_samples(5, seed=9), 0)


def make_settings(**changes: Any) -> TrainSettings:
    return TrainSettings(**{"dtype": "fp32", "eval_samples": 3, "micro_batch": 2, **changes})


def make_feeder(target: Target, source: Any) -> Feeder:
    teacher = Teacher(target, torch.arange(20), torch.float32, source)
    settings = make_settings()
    return Feeder(make_split(), teacher, settings, rank=0, world=1, micro_batch=2, accum=1)


def make_plan(target: Target, source: Any, **changes: Any) -> PlannedRun:
    shape = DraftShape.from_target_config(target.model.config.to_dict())
    return PlannedRun(
        settings=make_settings(**changes),
        processes=1,
        shape=shape,
        target_shape=shape,
        draft_vocab_size=20,
        target_parameters=10_000,
        split=make_split(),
        held=source.held,
    )


def test_a_full_store_frees_the_blocks_and_the_whole_pass_still_runs(tmp_path: Path) -> None:
    notes: list[str] = []
    settings = TrainSettings(dtype="fp32")
    target = make_target()
    filling = make_source(target, settings, tmp_path, IDENTITY)
    feeder = make_feeder(target, filling)
    prepare_source(filling, target, make_plan(target, filling), notes.append)
    assert any("0 samples cached" in n and "13 to compute" in n for n in notes), notes
    for number in range(feeder.plan.steps_per_epoch):
        for bins in feeder.work(number).micro:
            feeder.batch(bins)
    online = [features for _, features, _ in feeder.heldout()]
    filling.close()

    notes.clear()
    cached = make_source(target, settings, tmp_path, IDENTITY)
    feeder = make_feeder(target, cached)
    prepare_source(cached, target, make_plan(target, cached), notes.append)
    assert any("13 samples cached" in n and "0 to compute" in n for n in notes), notes
    assert any("blocks are freed" in note for note in notes), notes
    assert all(p.device.type == "meta" for p in target.layers.parameters())
    for number in range(feeder.plan.steps_per_epoch):
        for bins in feeder.work(number).micro:
            feeder.batch(bins)
    for (_, found, _), expected in zip(feeder.heldout(), online, strict=True):
        assert torch.equal(found.hidden, expected.hidden)
    with pytest.raises((RuntimeError, NotImplementedError)):
        target.forward(torch.tensor([[1, 2, 3]]))


def test_blocks_stay_where_prompts_are_decoded_at_each_check(tmp_path: Path) -> None:
    target = make_target()
    settings = make_settings(decode_eval=4)
    source = make_source(target, settings, tmp_path, IDENTITY)
    source.states([*make_samples(10), *make_samples(5, seed=9)])
    plan = make_plan(target, source, decode_eval=4)
    assert not plan.missing
    prepare_source(source, target, plan, lambda _: None)
    assert all(p.device.type == "cpu" for p in target.layers.parameters())
    source.close()


def test_a_short_run_needs_only_the_samples_it_meets(tmp_path: Path) -> None:
    notes: list[str] = []
    target = make_target()
    source = make_source(target, make_settings(), tmp_path, IDENTITY)
    prepare_source(source, target, make_plan(target, source, max_steps=2), notes.append)
    assert any("7 to compute" in note for note in notes), notes  # 2 steps of 2, and 3 held out
    source.close()


@pytest.mark.parametrize(
    ("changes", "kept"), [({"max_steps": 3}, False), ({"epochs": 2}, True), ({}, False)]
)
def test_memory_keeps_states_only_where_samples_come_again(
    changes: dict[str, Any], kept: bool
) -> None:
    target = make_target()
    source = make_source(target, make_settings(), None, IDENTITY)
    prepare_source(source, target, make_plan(target, source, **changes), lambda _: None)
    assert isinstance(source, MemoryStates)
    one, again = make_samples(2)
    source.states([one])
    source.states([again], heldout=True)
    assert source.keeps_training == kept
    training = {(False, one.index)} if kept else set()
    assert set(source._kept) == {*training, (True, again.index)}


def test_a_disk_too_small_is_refused_with_both_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = make_target()
    source = make_source(target, make_settings(), tmp_path / "new" / "cache", IDENTITY)
    plan = make_plan(target, source, eval_samples=5)
    size = plan.disk()["feature_cache"]
    real = os.statvfs

    def full(path: Any) -> Any:
        found = real(path)
        return SimpleNamespace(f_bavail=(size - 1) // 512, f_frsize=512, f_bsize=found.f_bsize)

    monkeypatch.setattr(os, "statvfs", full)
    with pytest.raises(InputError) as refused:
        prepare_source(source, target, plan, lambda _: None)
    line = str(refused.value)
    assert "15 samples" in line
    assert line.count("MiB") == 2
    assert str(tmp_path) in line
    assert "\n" not in line
    source.states([*plan.split.train, *plan.split.heldout[:2]])
    few = make_plan(target, source, eval_samples=5)
    assert few.disk()["feature_cache"] < size
    prepare_source(source, target, few, lambda _: None)  # what is cached needs no space
    source.close()


def test_free_space_is_that_of_the_disk_the_folder_will_lie_on(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    found = free_bytes(tmp_path / "not" / "there" / "yet")
    assert abs(found - disk.f_bavail * disk.f_frsize) < disk.f_blocks * disk.f_frsize / 10
    assert found > 0
