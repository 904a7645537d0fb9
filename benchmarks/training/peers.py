"""One training step in the order in which two other EAGLE-3 trainers do it, in plain torch.

Written anew from reading SpecForge (specforge/core/eagle3.py, loss.py and lk_loss.py, August 2026)
and EAGLE (eagle/traineagle3/cnets.py); no line is theirs. Parameters, norms, rotary embedding and
MLP are vtrim's own, so that only the order of work differs:

- the target's logits exist for every position and the whole vocabulary, [B, T, V], shifted by one;
- every position goes through every unroll step, the head included, whether it is trained or not;
- each step keeps [B, T, k] of the draft and [B, T, k] of the target until the backward pass;
- attention is eager: scores [B, heads, T, T] at each step, the later steps' own scores appended one
  by one, softmax in fp32; keys and values are repeated for the query heads;
- the loss mask is one row early and moves left by one from step to step; a row past its end has no
  teacher, or a uniform one.

SpecForge's loss is a Triton kernel whose backward pass writes over the logits: the same order is
done here by an autograd function. What it compiles for CUDA runs eagerly here, as on any CPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vtrim.models.draft import Eagle3Draft


def shift_left(x: Tensor) -> Tensor:
    """x: [B, T, ...] -> the same, row t taken from t + 1, zeros at the end."""
    return torch.cat((x[:, 1:], torch.zeros_like(x[:, :1])), dim=1)


def attend(query: Tensor, cache: list[tuple[Tensor, Tensor]], mask: Tensor) -> Tensor:
    """query: [B, n_h, T, d_h]; cache: keys and values of the steps so far; mask: [B, 1, T, T]."""
    length, size = query.shape[2], query.shape[3]
    scores = query @ cache[0][0].transpose(2, 3) / size**0.5
    scores = scores + mask
    for keys, _ in cache[1:]:
        own = (query * keys).sum(-1) / size**0.5
        scores = torch.cat((scores, own[..., None]), dim=-1)
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    context = weights[..., :length] @ cache[0][1]
    for place, (_, values) in enumerate(cache[1:], start=length):
        context = context + weights[..., place, None] * values
    return context


def unroll_step(
    draft: Eagle3Draft,
    embeds: Tensor,
    hidden: Tensor,
    cache: list[tuple[Tensor, Tensor]],
    mask: Tensor,
) -> Tensor:
    """All T rows through the draft's layer; appends to the cache and returns the new hidden."""
    layer, attention = draft.midlayer, draft.midlayer.self_attn
    groups = draft.shape.num_attention_heads // draft.shape.num_key_value_heads
    positions = torch.arange(hidden.shape[1])[None] + len(cache)
    x = layer.inputs(embeds, hidden)
    pair = attention.keys_values(x, positions)
    cache.append((pair[0].repeat_interleave(groups, 1), pair[1].repeat_interleave(groups, 1)))
    return layer.finish(hidden, attend(attention.queries(x, positions), cache, mask))


class InPlaceLoss(torch.autograd.Function):
    """Soft cross-entropy averaged over all rows; backward overwrites the logits it kept."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, mask: Tensor) -> Tensor:
        """logits, target: [B, T, k]; mask: [B, T, 1]."""
        top = logits.amax(-1, keepdim=True)
        scale = (logits - top).exp_().sum(-1, keepdim=True)
        loss = -(target * (logits - top - scale.log())).sum(-1, keepdim=True) * mask
        ctx.save_for_backward(logits.detach(), target, mask, top, scale)
        return loss.mean()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient by the logits, in their own memory."""
        logits, target, mask, top, scale = ctx.saved_tensors
        factor = grads[0] * mask / mask.numel()
        mass = target.sum(-1, keepdim=True)
        logits = logits.sub_(top).exp_().mul_(mass / scale).sub_(target).mul_(factor)
        return logits, None, None


class Peer(ABC):
    """One trainer's step. ``head``: the target's, [B, T, d] -> [B, T, V]."""

    def __init__(
        self, draft: Eagle3Draft, head: Callable[[Tensor], Tensor], vocab_size: int, steps: int
    ) -> None:
        self.draft, self.head, self.steps = draft, head, steps
        self.in_draft = torch.zeros(vocab_size, dtype=torch.bool)
        self.in_draft[draft.vocab_ids] = True
        self.kept: dict[str, Tensor] = {}  # of one micro-batch

    def __call__(
        self,
        ids: Tensor,
        loss_mask: Tensor,
        embedding: Tensor,
        aux: Tensor,
        hidden: Tensor,
        decay: float = 0.8,
    ) -> Tensor:
        """Total loss. ids, loss_mask: [B, T]; aux: [B, T, 3d]; hidden: [B, T, d] final states."""
        batch, length = ids.shape
        with torch.no_grad():
            self.begin(shift_left(self.head(hidden)), loss_mask[..., None].int())
        ids = shift_left(ids)
        causal = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)
        causal = causal.expand(batch, 1, length, length)
        state = self.draft.fuse(aux)
        cache: list[tuple[Tensor, Tensor]] = []
        total = torch.zeros(())
        for i in range(self.steps):
            state = unroll_step(self.draft, F.embedding(ids, embedding), state, cache, causal)
            total = total + decay**i * self.judge(i, self.draft.logits(state))
            ids = shift_left(ids)
        self.kept.clear()
        return total

    @abstractmethod
    def begin(self, target: Tensor, mask: Tensor) -> None:
        """Takes the target's logits [B, T, V] and the loss mask [B, T, 1]."""

    @abstractmethod
    def judge(self, step: int, logits: Tensor) -> Tensor:
        """Loss of one unroll step, with its metrics. logits: [B, T, k]."""


class SpecForge(Peer):
    """The target's law is formed once, padded, and copied out for each step.

    An acceptance rate is measured at each step whatever the loss.
    """

    def begin(self, target: Tensor, mask: Tensor) -> None:
        """See ``Peer``."""
        best = target.argmax(-1)
        on_draft = target[..., self.in_draft]
        law = on_draft.softmax(2)
        reached = (on_draft - target.logsumexp(-1, keepdim=True)).exp()
        rows = (0, 0, 0, self.steps)
        self.kept = {
            "mask": mask,
            "counted": self.in_draft[best][..., None].int() * mask,
            "law": F.pad(law, rows, value=1 / law.shape[-1]),
            "reached": F.pad(reached, rows),
            "best": F.pad(best, (0, self.steps)),
        }

    def judge(self, step: int, logits: Tensor) -> Tensor:
        """See ``Peer``."""
        kept, rows = self.kept, slice(step, step + logits.shape[1])
        law, reached = (kept[name][:, rows].contiguous() for name in ("law", "reached"))
        with torch.no_grad():
            guess = self.draft.vocab_ids[logits.argmax(-1)]
            right = (guess == kept["best"][:, rows]) * kept["mask"].squeeze(-1)
            right.sum() / kept["mask"].sum().clamp(min=1)
        loss: Tensor = InPlaceLoss.apply(logits, law, kept["counted"])  # type: ignore[no-untyped-call]
        with torch.no_grad():
            accepted = torch.minimum(reached, logits.softmax(-1)).sum(-1)
            (accepted * kept["counted"].squeeze(-1)).sum() / kept["counted"].sum().clamp(min=1)
        kept.update(counted=shift_left(kept["counted"]), mask=shift_left(kept["mask"]))
        return loss


class Eagle(Peer):
    """The target's logits are kept and shifted, its law is formed anew at each step."""

    def begin(self, target: Tensor, mask: Tensor) -> None:
        """See ``Peer``."""
        self.kept = {"target": target, "mask": mask}

    def judge(self, step: int, logits: Tensor) -> Tensor:
        """See ``Peer``."""
        kept = self.kept
        with torch.no_grad():
            known = self.in_draft[kept["target"].argmax(-1)][..., None]
            counted = known.int() * kept["mask"]
            law = kept["target"][..., self.in_draft].softmax(2)
        losses = law * F.log_softmax(logits, dim=2)
        with torch.no_grad():
            right = (logits.argmax(-1) == law.argmax(-1)) * counted.squeeze(-1)
            float(right.sum() / kept["mask"].sum().clamp(min=1))
            if step + 1 < self.steps:
                self.kept = {name: shift_left(tensor) for name, tensor in kept.items()}
        return -(counted * losses).sum(2).mean()


PEERS: dict[str, type[Peer]] = {"specforge": SpecForge, "eagle": Eagle}
