"""How fast this machine trains: one sample through the real step, on made-up target states."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from vtrim.models.draft import Eagle3Draft
from vtrim.shape import DraftShape
from vtrim.training.batch import Features, TrainSample, make_rows
from vtrim.training.estimate import count_data, draft_flops_of_pass
from vtrim.training.rows import teacher_positions
from vtrim.training.settings import TrainSettings
from vtrim.training.store_format import DTYPES
from vtrim.training.ttt import TTTModel, step_coefficients

_ENOUGH_S = 0.5  # of repeats; the fastest counts
_LONGEST_S = 20.0  # a step that would take longer is not tried


@dataclass(frozen=True, kw_only=True)
class Speed:
    """FLOP/s of a plain matrix product and of the draft's step (None: too slow to try)."""

    matmul: float
    step: float | None
    optimizer_s: float


def calibrate(
    shape: DraftShape,
    draft_vocab_size: int,
    sample: TrainSample,
    settings: TrainSettings,
    device: str,
) -> Speed:
    """Times a matrix product, and the step and update of a draft of random weights on ``sample``.

    Seconds of work, and the memory of a draft without its optimiser.
    """
    kind = DTYPES[settings.dtype]
    d, wide = shape.hidden_size, shape.intermediate_size
    x = torch.randn(min(512, sample.ids.size), d, device=device, dtype=kind)
    weight = torch.randn(wide, d, device=device, dtype=kind)
    matmul = 2 * x.shape[0] * d * wide / _fastest(lambda: F.linear(x, weight), device)
    pair = [(sample.ids.size, sample.loss_mask)]
    counts = count_data(pair, settings.ttt_steps, settings.mask_alignment)
    flops = sum(draft_flops_of_pass(shape, draft_vocab_size, counts, settings.ttt_steps).values())
    parameters = torch.zeros(1 << 20, device=device, requires_grad=True)
    parameters.grad = torch.zeros_like(parameters)
    adam = torch.optim.AdamW([parameters])
    update = _fastest(adam.step, device) / parameters.numel()
    if flops / matmul > _LONGEST_S:
        return Speed(matmul=matmul, step=None, optimizer_s=update)
    step = _fastest(_step(shape, draft_vocab_size, sample, settings, device), device)
    return Speed(matmul=matmul, step=flops / step, optimizer_s=update)


def _step(
    shape: DraftShape,
    draft_vocab_size: int,
    sample: TrainSample,
    settings: TrainSettings,
    device: str,
) -> Callable[[], object]:
    kind = DTYPES[settings.dtype]
    d, states = shape.target_hidden_size, teacher_positions(sample.loss_mask).size
    with torch.random.fork_rng():
        draft = Eagle3Draft(shape, torch.arange(draft_vocab_size)).to(device, kind)
    head = torch.randn(draft_vocab_size, d, device=device, dtype=kind) / d
    model = TTTModel(draft, settings, lambda hidden: F.linear(hidden, head))
    rows = make_rows([[sample]], settings.ttt_steps, settings.mask_alignment, device)
    best = torch.zeros(states, dtype=torch.int64, device=device)
    features = Features(
        embeds=torch.randn(1, sample.ids.size, d, device=device, dtype=kind),
        aux=torch.randn(1, sample.ids.size, 3 * d, device=device, dtype=kind),
        hidden=torch.randn(states, d, device=device, dtype=kind),
        log_z=torch.zeros(states, device=device),
        best=best,
        best_draft=best,
    )
    coefficients = step_coefficients(torch.tensor(rows.counts, device=device), settings.decay)
    return lambda: model(rows, features, coefficients).total.backward()


def _fastest(work: Callable[[], object], device: str) -> float:
    """The least of some repeats [s]; the first one, which warms up, does not count."""
    best, spent = float("inf"), 0.0
    work()
    while spent < _ENOUGH_S:
        _settle(device)
        begun = time.perf_counter()
        work()
        _settle(device)
        taken = time.perf_counter() - begun
        best, spent = min(best, taken), spent + taken
    return best


def _settle(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
