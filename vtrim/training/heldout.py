"""Held-out measures from the training graph: loss, accuracy, and the joint prefix.

``joint_prefix`` = 1 + sum_j P(first j draft tokens right): right means that the draft's arg-max,
as a target id, is the teacher's arg-max; the prefix goes on only where that is also the data
token. A teacher arg-max outside D is a miss. It exceeds the decoded acceptance length (rounds
restart at hard places), hence its own name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from vtrim.errors import InputError
from vtrim.training.batch import Features, Rows
from vtrim.training.loss import Judge, head_loss
from vtrim.training.ttt import TTTModel


@dataclass(frozen=True)
class HeldOut:
    """Held-out measures; lists have one entry a TTT step."""

    loss: float
    joint_prefix: float
    accuracy: list[float]
    prefix: list[float]
    oov_share: float


@torch.no_grad()
def heldout_sums(model: TTTModel, rows: Rows, features: Features) -> Tensor:
    """[5, S] sums over a micro-batch: loss, right, prefix right, OOV, rows."""
    steps = model.settings.ttt_steps
    judge = Judge(rows, features, model.teacher_logits, model.settings.loss, model.settings.oov)
    pairs = model.unroll(rows, features).flatten(0, 2)[rows.flat]
    weight = judge.weight
    through = partial(head_loss, coefficient=weight, judge=judge)
    _, losses, right = model.draft.lm_head(model.draft.norm(pairs), through=through)
    losses = losses * weight  # NaN where the target's state is
    shape = (steps, *rows.position.shape)
    agrees = right & (features.best[rows.slot] == _data_token(rows))
    right_at, agrees_at = (_scatter(values, rows.flat, shape) for values in (right, agrees))
    alive = torch.ones(shape[1:], dtype=torch.bool, device=rows.flat.device)
    prefix = torch.zeros(steps, dtype=torch.float64, device=alive.device)
    for i in range(steps):
        prefix[i] = (right_at[i] & alive).sum()
        alive = alive & agrees_at[i]
    oov = features.best_draft[rows.slot] < 0
    zeros = torch.zeros_like(prefix)
    by_step = [zeros.index_add(0, rows.step, values.double()) for values in (losses, right, oov)]
    counts = torch.tensor(rows.counts, dtype=torch.float64, device=alive.device)
    return torch.stack([by_step[0], by_step[1], prefix, by_step[2], counts])


def _data_token(rows: Rows) -> Tensor:
    """[n] the token of the data that each pair predicts, x[t+2+i]."""
    position = rows.position[0, rows.flat % rows.position.shape[1]]
    return rows.ids[0, position + 2 + rows.step]


def _scatter(values: Tensor, flat: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Booleans of the pairs, placed among all (step, sequence, row); False elsewhere."""
    whole = torch.zeros(shape, dtype=torch.bool, device=values.device)
    whole.view(-1)[flat] = values
    return whole


def evaluate(
    model: TTTModel, batches: Iterable[tuple[Rows, Features, bool]], decay: float
) -> HeldOut | None:
    """Sums over the counted batches of all processes, then the measures; None without a row.

    Raises:
        InputError: in all processes, where the loss is not finite.
    """
    steps = model.settings.ttt_steps
    total = torch.zeros(5, steps, dtype=torch.float64)
    for rows, features, counted in batches:
        sums = heldout_sums(model, rows, features).cpu()
        total += sums * counted
    if dist.is_initialized() and dist.get_world_size() > 1:
        total = total.to(next(model.parameters()).device)
        dist.all_reduce(total)
        total = total.cpu()
    loss, right, prefix, oov, rows_ = total
    if rows_[0] == 0:
        return None
    if not loss.isfinite().all():
        raise InputError(
            "the held-out loss is not finite: the target or the draft gives NaN on some held-out "
            "sample. The last checkpoint is whole. Mend the data, or try --dtype fp32."
        )
    count = rows_.clamp(min=1)
    weights = decay ** torch.arange(steps, dtype=torch.float64)
    return HeldOut(
        loss=float((weights * loss / count).sum()),
        joint_prefix=1.0 + float((prefix / count).sum()),
        accuracy=(right / count).tolist(),
        prefix=(prefix / count).tolist(),
        oov_share=float(oov[0] / count[0]),
    )
