"""Held-out measures from the training graph: loss, accuracy, and the joint prefix.

``joint_prefix`` = 1 + sum_j P(first j draft tokens right): right means that the draft's arg-max,
as a target id, is the teacher's arg-max; the prefix goes on only where that is also the data
token. A teacher arg-max outside D is a miss. It exceeds the decoded acceptance length (rounds
restart at hard places), hence its own name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from vtrim.training.batch import Features, Rows
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
    last = rows.ids.shape[1] - 1
    alive = rows.valid.clone()
    sums = torch.zeros(5, model.ttt_steps, dtype=torch.float64, device=alive.device)
    for i, hidden in enumerate(model.unroll(rows, features)):
        trained = rows.trained[i]
        at = (rows.position + 1 + i).clamp(max=last)
        best = features.best_draft.gather(1, at)[trained]
        logits = model.draft.logits(hidden[trained]).float()
        target = features.teacher[features.slot.gather(1, at)[trained]].float()
        loss = logits.logsumexp(-1) - (target * logits).sum(-1)
        right = torch.zeros_like(trained)
        right[trained] = logits.argmax(-1) == best
        values = (loss[best >= 0].sum(), right.sum(), (right & alive).sum(), (best < 0).sum())
        sums[:, i] = torch.stack([v.double() for v in (*values, trained.sum())])
        data_token = rows.ids.gather(1, (at + 1).clamp(max=last))
        alive = alive & right & (features.best.gather(1, at) == data_token)
    return sums


def evaluate(
    model: TTTModel, batches: Iterable[tuple[Rows, Features, bool]], decay: float
) -> HeldOut:
    """Sums over the counted batches of all processes, then the measures."""
    steps = model.ttt_steps
    total = torch.zeros(5, steps, dtype=torch.float64)
    for rows, features, counted in batches:
        sums = heldout_sums(model, rows, features).cpu()
        total += sums * counted
    if dist.is_initialized() and dist.get_world_size() > 1:
        total = total.to(next(model.parameters()).device)
        dist.all_reduce(total)
        total = total.cpu()
    loss, right, prefix, oov, rows_ = total
    count = rows_.clamp(min=1)
    weights = decay ** torch.arange(steps, dtype=torch.float64)
    return HeldOut(
        loss=float((weights * loss / count).sum()),
        joint_prefix=1.0 + float((prefix / count).sum()),
        accuracy=(right / count).tolist(),
        prefix=(prefix / count).tolist(),
        oov_share=float(oov[0] / count[0]),
    )
