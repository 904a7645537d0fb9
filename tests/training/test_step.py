"""The training step against plain loops, and what it must not do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from vtrim.models.draft import Eagle3Draft
from vtrim.models.target import Target
from vtrim.shape import DraftShape
from vtrim.training.batch import Features, Rows, TrainSample, make_rows
from vtrim.training.settings import TrainSettings
from vtrim.training.states import MemoryStates, OnlineStates
from vtrim.training.teacher import Teacher
from vtrim.training.ttt import StepSums, TTTModel, step_coefficients

sys.path.insert(0, str(Path(__file__).parent))
from reference import reference_logits, reference_loss

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
FAMILIES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}
SAMPLES = [
    ([1, 5, 9, 3, 3, 7, 2, 8, 30, 11, 4, 2], [0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1]),
    ([6, 2, 31, 12, 9, 1, 2], [0, 0, 1, 1, 1, 1, 1]),
    ([4, 4, 17], [0, 1, 1]),
]
KEPT = [0, 1, 2, 3, 5, 8, 9, 11, 12, 14, 17, 20, 22, 25, 30, 31, 33, 36]
STEPS = 4
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
Gradients = dict[str, Tensor]


@cache
def _target(family: str) -> Target:
    config_class, model_class = FAMILIES[family]
    torch.manual_seed(3)
    model = model_class(config_class(**SIZES, tie_word_embeddings=False))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6)
    return Target(model, family)


def _draft(target: Target) -> Eagle3Draft:
    shape = DraftShape.from_target_config(target.model.config.to_dict())
    torch.manual_seed(5)
    draft = Eagle3Draft(shape, torch.tensor(KEPT))
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return draft


def _sample(ids: Sequence[int], mask: Sequence[int], index: int = 0) -> TrainSample:
    return TrainSample(np.array(ids), np.array(mask, dtype=bool), index)


def _samples() -> list[TrainSample]:
    return [_sample(ids, mask, index) for index, (ids, mask) in enumerate(SAMPLES)]


def _settings(**changes: Any) -> TrainSettings:
    return TrainSettings(**{"ttt_steps": STEPS, "dtype": "fp32", **changes})


def _teacher(target: Target) -> Teacher:
    return Teacher(target, torch.tensor(KEPT), torch.float32, OnlineStates(target))


def _one_by_one(samples: list[TrainSample]) -> list[list[TrainSample]]:
    return [[sample] for sample in samples]


def _step(
    target: Target,
    draft: Eagle3Draft,
    bins: list[list[TrainSample]],
    settings: TrainSettings,
    device: str = "cpu",
    divisors: Tensor | None = None,
) -> StepSums:
    rows = make_rows(bins, settings.ttt_steps, settings.mask_alignment, device)
    teacher = _teacher(target)
    model = TTTModel(draft, settings, teacher.logits)
    if divisors is None:
        tokens = torch.full((settings.ttt_steps,), rows.length, device=device)
        counts = torch.tensor(rows.counts, device=device)
        divisors = tokens if settings.divisor == "bt" else counts
    coefficients = step_coefficients(divisors, settings.decay)
    return model(rows, teacher.features(bins, rows), coefficients)


def _gradients(draft: Eagle3Draft, total: Tensor, keep: bool = False) -> Gradients:
    parameters = dict(draft.named_parameters())
    found = torch.autograd.grad(total, list(parameters.values()), retain_graph=keep)
    return dict(zip(parameters, found, strict=True))


def _equal(ours: Gradients, theirs: Gradients, **close: float) -> None:
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, theirs[name], **(close or CLOSE), msg=name)


@cache
def _slow(family: str) -> tuple[Eagle3Draft, dict[Any, Tensor], list[Tensor]]:
    """A draft, its logits by plain loops, and the target's logits."""
    target = _target(family)
    draft = _draft(target)
    teacher, aux = [], []
    for ids, _ in SAMPLES:
        out = target.model(torch.tensor([ids]), output_hidden_states=True)
        teacher.append(out.logits[0])
        aux.append(torch.cat([out.hidden_states[j][0] for j in (2, 4, 5)], -1))
    weights = dict(draft.named_parameters())
    logits = reference_logits(weights, draft.shape, SAMPLES, aux, target.embedding, STEPS)
    return draft, logits, teacher


@pytest.mark.parametrize("oov", ["drop", "keep"])
@pytest.mark.parametrize("divisor", ["rows", "bt"])
@pytest.mark.parametrize("alignment", ["exact", "eagle"])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_loss_and_gradients_equal_the_plain_loops(
    family: str, alignment: str, divisor: str, oov: str
) -> None:
    draft, logits, teacher = _slow(family)
    settings = _settings(mask_alignment=alignment, divisor=divisor, oov=oov)
    slow = reference_loss(
        logits, KEPT, SAMPLES, teacher, STEPS, settings.decay, alignment, divisor, oov
    )
    expected = _gradients(draft, slow, keep=True)
    one, two, three = _samples()
    for bins in ([[one], [two], [three]], [[three, one], [two]], [[two, one, three]]):
        sums = _step(_target(family), draft, bins, settings)
        torch.testing.assert_close(sums.total, slow, **CLOSE)
        _equal(_gradients(draft, sums.total), expected)
    pairs = sum(make_rows([_samples()], STEPS, settings.mask_alignment).counts)
    assert 0 < int(sums.oov.sum()) < pairs, "teachers inside and outside D must both occur"


@pytest.mark.parametrize("alignment", ["exact", "eagle"])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_document_of_one_to_three_tokens_changes_nothing_of_its_neighbours(
    length: int, alignment: str
) -> None:
    target, settings = _target("llama"), _settings(mask_alignment=alignment, ttt_steps=9)
    draft, (one, two, _) = _draft(target), _samples()
    tiny = _sample([7, 5, 9][:length], [1] * length)
    divisors = torch.full((9,), 10)
    alone = [_step(target, draft, [[s]], settings, divisors=divisors) for s in (one, tiny, two)]
    packed = _step(target, draft, [[one, tiny, two]], settings, divisors=divisors)
    torch.testing.assert_close(packed.total, sum(s.total for s in alone), **CLOSE)
    _equal(
        _gradients(draft, packed.total),
        _gradients(draft, torch.stack([s.total for s in alone]).sum()),
    )


@pytest.mark.parametrize("steps", range(1, 10))
def test_any_number_of_unrolled_steps_begins_like_fewer(steps: int) -> None:
    target, samples = _target("llama"), _samples()
    draft = _draft(target)
    fewer = _step(target, draft, [samples], _settings(ttt_steps=steps))
    all_nine = _step(target, draft, [samples], _settings(ttt_steps=9))
    assert fewer.loss.shape == (steps,)
    torch.testing.assert_close(fewer.loss, all_nine.loss[:steps], **CLOSE)


def test_another_document_changes_neither_loss_nor_gradients() -> None:
    target, settings = _target("llama"), _settings()
    draft, second = _draft(target), _samples()[1]
    found = []
    for ids in ([1, 5, 9, 3, 3, 7], [36, 20, 2, 2, 14, 0]):
        # nothing of the first document is trained: all that could differ is what it lends
        first = _sample(ids, [0] * 6)
        sums = _step(target, draft, [[first, second]], settings)
        found.append({"loss": sums.total.detach(), **_gradients(draft, sums.total)})
    _equal(found[0], found[1], rtol=0, atol=1e-6)


def test_eos_and_pad_ids_inside_a_reply_are_trained_like_any_other() -> None:
    """No row is left out for the value of its token: padding is by place alone."""
    mask = [0, 1, 1, 1, 1, 1]
    counts = [
        make_rows([[_sample(ids, mask)], [_sample([3] * 9, [1] * 9)]], 3, "exact").counts
        for ids in ([0, 0, 0, 0, 0, 0], [2, 2, 2, 2, 2, 2], [5, 6, 7, 8, 9, 1])
    ]
    assert counts[0] == counts[1] == counts[2] == (4 + 7, 3 + 6, 2 + 5)
    target = _target("llama")
    draft = _draft(target)
    kept = _step(target, draft, [[_sample([0] * 6, mask)]], _settings(ttt_steps=1, oov="keep"))
    assert float(kept.loss) > 0


def test_rows_whose_teacher_lies_past_the_end_take_no_part() -> None:
    """A zero teacher would pull the tail of every sample towards a uniform law."""
    for alignment in ("exact", "eagle"):
        rows = make_rows([_samples()], 9, alignment)
        ends = np.cumsum([len(ids) for ids, _ in SAMPLES])
        at = rows.position[0, rows.flat % rows.position.shape[1]]
        judged = (at + 1 + rows.step).numpy()
        own_end = ends[np.searchsorted(ends, at.numpy(), side="right")]
        assert (judged < own_end).all()


def test_padding_and_batch_mates_change_nothing() -> None:
    target, samples = _target("llama"), _samples()
    draft, settings = _draft(target), _settings(ttt_steps=3)

    def sums(chosen: list[TrainSample]) -> torch.Tensor:
        out = _step(target, draft, _one_by_one(chosen), settings)
        return torch.stack([out.loss, out.correct, out.oov])

    alone = sum(sums([s]) for s in samples)
    torch.testing.assert_close(sums(samples), alone, **CLOSE)


def test_on_a_cpu_states_do_not_depend_on_batch_mates_to_the_last_bit() -> None:
    source, samples = OnlineStates(_target("llama")), _samples()
    together = source.states(samples)
    for sample, state in zip(samples, together, strict=True):
        (alone,) = source.states([sample])
        for name, value in vars(state).items():
            assert torch.equal(value, getattr(alone, name)), name


def test_states_kept_in_memory_give_the_same_features() -> None:
    target, samples = _target("llama"), _samples()
    bins = _one_by_one(samples)
    rows = make_rows(bins, 3, "exact")
    fresh = _teacher(target).features(bins, rows)
    memory = MemoryStates(OnlineStates(target), 10**9)
    teacher = Teacher(target, torch.tensor(KEPT), torch.float32, memory)
    teacher.features(bins, rows)
    assert memory.used > 0
    memory.inner = None  # type: ignore[assignment]  # a second call must not need it
    again = teacher.features(bins, rows)
    for name, value in vars(fresh).items():
        torch.testing.assert_close(getattr(again, name), value, msg=name)


def _meta(count: int) -> tuple[TTTModel, Rows, Features]:
    """A step on tensors that have a shape and no values."""
    shape = _draft(_target("llama")).shape
    draft = Eagle3Draft(shape, torch.tensor(KEPT)).to("meta")
    sample = _sample([3] * count, [0] * 4 + [1] * (count - 4))
    rows = make_rows([[sample]], STEPS, "exact", "meta")
    states = rows.first_row.size - 1

    def empty(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(size, device="meta", dtype=dtype)

    ids = empty(states, dtype=torch.int64)
    wide = 3 * shape.hidden_size
    features = Features(
        embeds=empty(1, count, shape.hidden_size),
        aux=empty(1, count, wide),
        hidden=empty(states, shape.hidden_size),
        log_z=empty(states),
        best=ids,
        best_draft=ids,
    )
    head = empty(len(KEPT), shape.hidden_size)
    return TTTModel(draft, _settings(), lambda hidden: hidden @ head.T), rows, features


def test_the_step_never_asks_for_a_value() -> None:
    """On tensors without values ``item``, ``bool``, ``tolist`` and masks by value all fail."""
    model, rows, features = _meta(24)
    sums = model(rows, features, torch.ones(STEPS, device="meta"))
    sums.total.backward()
    for ask in (bool, float, Tensor.tolist, Tensor.nonzero):
        with pytest.raises((RuntimeError, NotImplementedError)):
            ask(sums.total)


def test_beyond_causal_attention_twice_the_tokens_cost_twice() -> None:
    """The products of attention are batched (bmm); all others are plain (mm)."""
    plain, batched = [], []
    for count in (4 + 65, 4 + 129, 4 + 257):
        model, rows, features = _meta(count)
        assert rows.position.shape[1] == count - 5
        with FlopCounterMode(display=False) as counter:
            model(rows, features, torch.ones(STEPS, device="meta")).total.backward()
        flops = counter.get_flop_counts()["Global"]
        plain.append(flops.pop(torch.ops.aten.mm))
        batched.append(flops.pop(torch.ops.aten.bmm))
        assert not flops
    # the few prompt tokens and the last steps' missing rows leave a constant
    assert plain[2] - plain[1] == 2 * (plain[1] - plain[0])
    assert 3 < (batched[2] - batched[1]) / (batched[1] - batched[0]) < 4


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_step_on_cuda_gives_the_loss_and_gradients_of_the_cpu() -> None:
    found = []
    for device in ("cpu", "cuda"):
        target = _target.__wrapped__("llama")  # the cached one stays where it is
        draft = _draft(target).to(device)
        target.model.to(device)
        total = _step(target, draft, [_samples()], _settings(), device).total
        gradients = _gradients(draft, total)
        found.append({name: g.cpu() for name, g in {"loss": total, **gradients}.items()})
    _equal(found[0], found[1], rtol=1e-3, atol=1e-3)
