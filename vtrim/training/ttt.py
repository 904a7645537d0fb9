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
from vtrim.training.loss import soft_cross_entropy


@dataclass(frozen=True)
class StepSums:
    """Sums over a micro-batch, one entry a TTT step.

    loss: [S] summed soft cross-entropy; correct: [S] rows whose arg-max is the teacher's;
    oov: [S] rows whose teacher arg-max lies outside D; rows: [S] rows the mask reaches.
    """

    loss: Tensor
    correct: Tensor
    oov: Tensor
    rows: Tensor


def gather_rows(x: Tensor, position: Tensor) -> Tensor:
    """x: [B, T, w], position: [B, R] -> [B, R, w]."""
    return x.gather(1, position[..., None].expand(-1, -1, x.shape[-1]))


def unroll_attention(
    query: Tensor, first: tuple[Tensor, Tensor], own: list[tuple[Tensor, Tensor]], position: Tensor
) -> Tensor:
    """Attention of step i's rows -> [B, n_h, R, d_h].

    query: [B, n_h, R, d_h]; first: keys and values of step 0, [B, n_kv, T, d_h]; own: those of
    the rows themselves at steps 1..i, [B, n_kv, R, d_h]; position: [B, R].
    """
    keys, values = first
    batch, heads, rows, size = query.shape
    groups, length = keys.shape[1], keys.shape[2]
    q = query.unflatten(1, (groups, heads // groups)) * size**-0.5
    flat = q.flatten(2, 3)  # [B, n_kv, g*R, d_h]
    scores = (flat @ keys.transpose(-1, -2)).float().view(*q.shape[:4], length)
    later = torch.arange(length, device=query.device) > position[..., None]  # [B, R, T]
    scores = scores.masked_fill(later[:, None, None], float("-inf"))
    diagonal = [(q * k[:, :, None]).sum(-1, keepdim=True).float() for k, _ in own]
    weights = torch.cat([scores, *diagonal], dim=-1).softmax(-1).to(query.dtype)
    past = weights[..., :length].flatten(2, 3) @ values
    context = past.view(q.shape)
    for j, (_, v) in enumerate(own):
        context = context + weights[..., length + j, None] * v[:, :, None]
    return context.reshape(batch, heads, rows, size)


class TTTModel(nn.Module):
    """The draft and its unrolled loss: the module that DeepSpeed wraps."""

    def __init__(self, draft: Eagle3Draft, ttt_steps: int) -> None:
        super().__init__()
        self.draft = draft
        self.ttt_steps = ttt_steps

    def unroll(self, rows: Rows, features: Features) -> list[Tensor]:
        """The pre-norm h' of the trained rows, [B, R, d] for each step."""
        layer, attention = self.draft.midlayer, self.draft.midlayer.self_attn
        embeds = features.embeds
        shifted = torch.cat((embeds[:, 1:], embeds[:, -1:]), dim=1)  # row t reads token t+1
        fused = self.draft.fuse(features.aux)
        x_all = layer.inputs(shifted, fused)
        everywhere = torch.arange(x_all.shape[1], device=x_all.device)[None]
        first = attention.keys_values(x_all, everywhere)
        hidden, x = gather_rows(fused, rows.position), gather_rows(x_all, rows.position)
        own: list[tuple[Tensor, Tensor]] = []
        outputs: list[Tensor] = []
        last = embeds.shape[1] - 1
        for i in range(self.ttt_steps):
            at = rows.position + i
            if i > 0:
                x = layer.inputs(gather_rows(embeds, (at + 1).clamp(max=last)), hidden)
                own.append(attention.keys_values(x, at))
            context = unroll_attention(attention.queries(x, at), first, own, rows.position)
            hidden = layer.finish(hidden, context)
            outputs.append(hidden)
        return outputs

    def forward(self, rows: Rows, features: Features) -> StepSums:
        """Loss sums and counts of one micro-batch."""
        losses, correct, oov, counts = [], [], [], []
        last = rows.ids.shape[1] - 1
        for i, hidden in enumerate(self.unroll(rows, features)):
            trained = rows.trained[i]
            at = (rows.position + 1 + i).clamp(max=last)
            best = features.best_draft.gather(1, at)
            kept = trained & (best >= 0)  # the target's arg-max must be draftable
            judge = partial(
                soft_cross_entropy,
                teacher=features.teacher,
                index=features.slot.gather(1, at)[kept],
                best=best[kept],
            )
            loss, right = self.draft.lm_head(self.draft.norm(hidden[kept]), through=judge)
            losses.append(loss)
            correct.append(right)
            counts.append(trained.sum())
            oov.append(trained.sum() - kept.sum())
        stack = torch.stack
        return StepSums(stack(losses), stack(correct), stack(oov), stack(counts))


def step_loss(sums: StepSums, divisors: Tensor, decay: float) -> Tensor:
    """sum_i decay^i * loss_i / N_i. divisors: [S] rows of the whole optimiser step."""
    weights = decay ** torch.arange(divisors.numel(), device=divisors.device, dtype=torch.float32)
    return (weights * sums.loss / divisors.clamp(min=1)).sum()
