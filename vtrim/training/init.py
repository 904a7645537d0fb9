"""How a new draft starts.

A head copied from the target under its own unscaled final norm starts near a loss of 30; a quarter
of that norm, and an fc that passes the highest auxiliary state through, start it near the loss of
a uniform guess and let the residual stream carry something useful from the first step. A frozen
head starts the same way and stays the target's; the norm before it is trained.
"""

from __future__ import annotations

import torch
from torch import nn

from vtrim.models.draft import Eagle3Draft
from vtrim.models.target import Target
from vtrim.shape import DraftShape
from vtrim.training.settings import HeadInit
from vtrim.vocab import DraftVocab

NORM_SCALE = 0.25
STD = 0.02


def new_draft(
    target: Target, shape: DraftShape, vocab: DraftVocab, head_init: HeadInit, seed: int
) -> Eagle3Draft:
    """A fresh fp32 draft on the CPU; the same seed gives the same weights."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.from_numpy(vocab.ids)
    draft = Eagle3Draft(shape, ids)
    for module in draft.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=STD, generator=generator)
    with torch.no_grad():
        # attention and MLP begin as small additions to the residual stream
        nn.init.zeros_(draft.midlayer.self_attn.o_proj.weight)
        nn.init.zeros_(draft.midlayer.mlp.down_proj.weight)
        if shape.hidden_size == shape.target_hidden_size:
            nn.init.zeros_(draft.fc.weight)
            draft.fc.weight[:, -shape.target_hidden_size :] = torch.eye(shape.hidden_size)
        if head_init != "random":
            draft.lm_head.weight.copy_(target.head_weight[ids].float())
            scale = target.final_norm_scale
            if scale is not None:
                draft.norm.weight.copy_(scale.float() * NORM_SCALE)
    draft.lm_head.weight.requires_grad_(head_init != "frozen")
    return draft
