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
from vtrim.training.attention import KeysValues, attention_of
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
    """x: [1, N, w], position: [1, R] -> [1, R, w]."""
    return x[0].index_select(0, position[0])[None]


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
        """The pre-norm h' of the trained rows after each step, [S, 1, R, d]."""
        layer, attention = self.draft.midlayer, self.draft.midlayer.self_attn
        size = self.draft.shape.hidden_size
        of_embed, of_hidden = slice(0, size), slice(size, 2 * size)
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        embeds = layer.input_layernorm(features.embeds)
        # what a token's embedding gives to queries, keys and values is the same at every step
        q_embed, k_embed, v_embed = (project(embeds, of_embed) for project in projections)
        fused = self.draft.fuse(features.aux)
        normed = layer.hidden_norm(fused)
        k, v = (project(normed, of_hidden) for project in projections[1:])
        index = torch.arange(rows.length, device=fused.device)[None]
        following = (index + 1).clamp(max=rows.length - 1)  # row t reads token t+1
        keys = attention.rotated(k + gather_rows(k_embed, following), index - rows.start)
        first = (keys, attention.heads(v + gather_rows(v_embed, following)))
        start = rows.start.gather(1, rows.position)
        hidden, normed = gather_rows(fused, rows.position), gather_rows(normed, rows.position)
        attend = attention_of(rows)
        own: list[KeysValues] = []
        outputs: list[Tensor] = []
        for i in range(self.settings.ttt_steps):
            at = rows.position - start + i
            token = (rows.position + 1 + i).clamp(max=rows.length - 1)
            if i > 0:
                normed = layer.hidden_norm(hidden)
                k, v = (project(normed, of_hidden) for project in projections[1:])
                keys = attention.rotated(k + gather_rows(k_embed, token), at)
                own.append((keys, attention.heads(v + gather_rows(v_embed, token))))
            q = attention.q_proj(normed, of_hidden) + gather_rows(q_embed, token)
            hidden = layer.finish(hidden, attend(attention.rotated(q, at), first, own))
            outputs.append(hidden)
        return torch.stack(outputs)

    def forward(self, rows: Rows, features: Features, coefficients: Tensor) -> StepSums:
        """Loss and counts of one micro-batch. coefficients: [S] decay^i / N_i."""
        judge = Judge(rows, features, self.teacher_logits, self.settings.loss, self.settings.oov)
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
