"""Held-out prompts decoded greedily by the real engine with the weights of the moment.

The prompt is a held-out sample up to its last reply. Drafting is a chain of fixed length, so the
numbers of one run compare with each other and with ``vtrim eval`` at the same length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from vtrim.decoding.acceptors.greedy import Greedy
from vtrim.decoding.chain import ChainDrafter
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import Generation, GenerationSettings
from vtrim.models.draft import Eagle3Draft
from vtrim.models.target import Target
from vtrim.training.batch import TrainSample
from vtrim.training.settings import TrainSettings

NEW_TOKENS = 48
MOST_DRAFTED = 3


@dataclass(frozen=True, kw_only=True)
class DecodeCheck:
    """What is decoded at each check, by each process its share. prompts: token ids."""

    target: Target
    prompts: list[list[int]]
    stop_ids: frozenset[int]
    num_draft_tokens: int

    def measure(self, draft: Eagle3Draft) -> dict[str, Any]:
        """Accepted length and its parts, over all prompts; all processes call."""
        engine = Engine(self.target, ChainDrafter(draft, self.target.embedding))
        settings = GenerationSettings(
            max_new_tokens=NEW_TOKENS,
            stop_ids=self.stop_ids,
            temperature=0.0,
            num_draft_tokens=self.num_draft_tokens,
            seed=0,
        )
        rank, world = dist.get_rank(), dist.get_world_size()
        counts = torch.zeros(3, self.num_draft_tokens + 1, dtype=torch.float64)
        for index in range(rank, len(self.prompts), world):
            reply = engine.decode(self.prompts[index], settings, Greedy(), prompt=index)
            counts += _counts(reply, self.num_draft_tokens)
        if world > 1:
            counts = counts.to(self.target.device)
            dist.all_reduce(counts)
        (emitted, rounds, *_), drafted, accepted = counts.tolist()
        return {
            "acceptance_length": round(emitted / max(1.0, rounds), 5),
            "acceptance_by_position": [
                round(a / max(1.0, d), 5) for a, d in zip(accepted[1:], drafted[1:], strict=True)
            ],
            "prompts": len(self.prompts),
            "num_draft_tokens": self.num_draft_tokens,
            "rounds": int(rounds),
        }


def make_check(
    target: Target,
    heldout: Sequence[TrainSample],
    settings: TrainSettings,
    stop_ids: Sequence[int],
    positions: int,
) -> DecodeCheck | None:
    """A check of ``decode_eval`` prompts drawn from the held-out samples; None without any.

    positions: context length of the draft.
    """
    known = getattr(target.config, "max_position_embeddings", None)
    room = min(positions, known or positions) - 1  # the reply needs a position
    order = np.random.default_rng(settings.seed).permutation(len(heldout))
    fitting = (prompt_of(heldout[i]) for i in order)
    prompts = [prompt for prompt in fitting if 0 < len(prompt) <= room][: settings.decode_eval]
    if not prompts:
        return None
    return DecodeCheck(
        target=target,
        prompts=prompts,
        stop_ids=frozenset(stop_ids),
        num_draft_tokens=min(settings.ttt_steps, MOST_DRAFTED),
    )


def prompt_of(sample: TrainSample) -> list[int]:
    """The sample's tokens up to its last reply."""
    reply = np.flatnonzero(sample.loss_mask)
    gaps = np.flatnonzero(np.diff(reply) > 1)
    start = reply[gaps[-1] + 1] if gaps.size else reply[0]
    ids: list[int] = sample.ids[:start].tolist()
    return ids


def _counts(reply: Generation, length: int) -> Tensor:
    """[3, L+1]: emitted tokens and rounds; rounds that drafted j tokens or more; that accepted."""
    counts = torch.zeros(3, length + 1, dtype=torch.float64)
    counts[0, 0], counts[0, 1] = reply.emitted, reply.rounds
    for drafted, accepted in zip(reply.drafted, reply.accepted, strict=True):
        counts[1, : drafted + 1] += 1
        counts[2, : accepted + 1] += 1
    return counts
