"""EAGLE-3's training-time test (arXiv:2503.01840): S unrolled draft steps and their loss.

Row t at step i has input token x[t+1+i], hidden = step i-1's output of the same row, RoPE position
t+i, and sees the step-0 keys of rows s <= t and its own keys of steps 1..i. Only the rows that are
trained go through queries, MLP and head: nothing else reads an untrained row's output.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from vtrim.models.draft import Eagle3Draft
from vtrim.training.batch import Features, Rows
from vtrim.training.loss import Judge, TeacherLogits, head_loss
from vtrim.training.settings import TrainSettings


@dataclass(frozen=True)
class StepSums:
    """Results of a micro-batch; the sums have one fp32 entry a TTT step.

    total: the weighted loss that is minimised; loss: [S] summed loss of the pairs that count;
    correct: [S] pairs whose arg-max is the teacher's; oov: [S] pairs whose teacher arg-max lies
    outside D. How many pairs a step has is ``Rows.counts``.
    """

    total: Tensor
    loss: Tensor
    correct: Tensor
    oov: Tensor


def gather_rows(x: Tensor, position: Tensor) -> Tensor:
    """x: [B, T, w], position: [B, R] -> [B, R, w]."""
    return x.gather(1, position[..., None].expand(-1, -1, x.shape[-1]))


def unroll_attention(
    query: Tensor,
    first: tuple[Tensor, Tensor],
    own: list[tuple[Tensor, Tensor]],
    position: Tensor,
    start: Tensor,
) -> Tensor:
    """Attention of step i's rows -> [B, n_h, R, d_h].

    query: [B, n_h, R, d_h]; first: keys and values of step 0, [B, n_kv, T, d_h]; own: those of
    the rows themselves at steps 1..i, [B, n_kv, R, d_h]; position: [B, R] the
    last step-0 key each row sees; start: [B, R] the first, where its document begins.
    """
    keys, values = first
    batch, heads, rows, size = query.shape
    groups, length = keys.shape[1], keys.shape[2]
    q = query.unflatten(1, (groups, heads // groups)) * size**-0.5
    flat = q.flatten(2, 3)  # [B, n_kv, g*R, d_h]
    scores = (flat @ keys.transpose(-1, -2)).float().view(*q.shape[:4], length)
    key = torch.arange(length, device=query.device)
    hidden = (key > position[..., None]) | (key < start[..., None])  # [B, R, T]
    scores = scores.masked_fill(hidden[:, None, None], float("-inf"))
    diagonal = [(q * k[:, :, None]).sum(-1, keepdim=True).float() for k, _ in own]
    weights = torch.cat([scores, *diagonal], dim=-1).softmax(-1).to(query.dtype)
    past = weights[..., :length].flatten(2, 3) @ values
    context = past.view(q.shape)
    for j, (_, v) in enumerate(own):
        context = context + weights[..., length + j, None] * v[:, :, None]
    return context.reshape(batch, heads, rows, size)


class TTTModel(nn.Module):
    """The draft and its unrolled loss: the module that DeepSpeed wraps."""

    def __init__(
        self, draft: Eagle3Draft, settings: TrainSettings, teacher_logits: TeacherLogits
    ) -> None:
        super().__init__()
        self.draft = draft
        self.settings = settings
        self.teacher_logits = teacher_logits

    def unroll(self, rows: Rows, features: Features) -> Tensor:
        """The pre-norm h' of the trained rows after each step, [S, B, R, d]."""
        layer, attention = self.draft.midlayer, self.draft.midlayer.self_attn
        embeds = features.embeds
        shifted = torch.cat((embeds[:, 1:], embeds[:, -1:]), dim=1)  # row t reads token t+1
        fused = self.draft.fuse(features.aux)
        x_all = layer.inputs(shifted, fused)
        where = torch.arange(x_all.shape[1], device=x_all.device)[None] - rows.start
        first = attention.keys_values(x_all, where)
        start = rows.start.gather(1, rows.position)
        hidden, x = gather_rows(fused, rows.position), gather_rows(x_all, rows.position)
        own: list[tuple[Tensor, Tensor]] = []
        outputs: list[Tensor] = []
        last = embeds.shape[1] - 1
        for i in range(self.settings.ttt_steps):
            at = rows.position - start + i
            if i > 0:
                token = (rows.position + 1 + i).clamp(max=last)
                x = layer.inputs(gather_rows(embeds, token), hidden)
                own.append(attention.keys_values(x, at))
            query = attention.queries(x, at)
            context = unroll_attention(query, first, own, rows.position, start)
            hidden = layer.finish(hidden, context)
            outputs.append(hidden)
        return torch.stack(outputs)

    def forward(self, rows: Rows, features: Features, coefficients: Tensor) -> StepSums:
        """Loss and counts of one micro-batch. coefficients: [S] decay^i / N_i."""
        judge = Judge(
            rows, features, self.teacher_logits, self.settings.loss, self.settings.oov
        )
        pairs = self.unroll(rows, features).flatten(0, 2)[rows.flat]
        weight = judge.weight
        through = partial(head_loss, coefficient=coefficients[rows.step] * weight, judge=judge)
        total, losses, right = self.draft.lm_head(self.draft.norm(pairs), through=through)
        zeros = torch.zeros_like(coefficients)
        best = features.best_draft[rows.slot]
        return StepSums(
            total,
            zeros.index_add(0, rows.step, losses * weight),
            zeros.index_add(0, rows.step, right.float()),
            zeros.index_add(0, rows.step, (best < 0).float()),
        )


def step_coefficients(divisors: Tensor, decay: float) -> Tensor:
    """[S] decay^i / N_i: what each step's summed loss is multiplied by. divisors: [S]."""
    power = torch.arange(divisors.numel(), device=divisors.device, dtype=torch.float32)
    return decay**power / divisors.clamp(min=1)
