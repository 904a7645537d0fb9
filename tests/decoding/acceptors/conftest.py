"""A small target and draft made of plain tensors, with the interface that acceptors see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from vtrim.decoding.protocol import Proposal, Verification


@dataclass
class Scene:
    """Random states, a random head and a draft that knows every second token.

    hidden: [L+1, d]; weight: [V, d]; vocab_ids: [k]; draft_logits: [L, k].
    """

    hidden: Tensor
    weight: Tensor
    vocab_ids: Tensor
    draft_logits: Tensor
    head_calls: list[tuple[int, ...]] = field(default_factory=list)

    def head(self, hidden: Tensor) -> Tensor:
        self.head_calls.append(tuple(hidden.shape))
        return hidden @ self.weight.T

    def view(
        self, temperature: float = 0.0, *, first: int = 0, position: int = 100
    ) -> Verification:
        """The rows from ``first`` on, whose first judged position is ``position + first``."""
        hidden = self.hidden[first:]
        return Verification(
            hidden, hidden @ self.weight.T, self.head, temperature, position + first, prompt=7
        )

    def proposal(self, tokens: list[int], temperature: float = 0.0, *, first: int = 0) -> Proposal:
        """These tokens, with the draft's law at the temperature (1 when greedy)."""
        logits = self.draft_logits[first : first + len(tokens)]
        law = (logits / (temperature or 1.0)).log_softmax(-1)
        log_q = law if temperature > 0 else None
        return Proposal(torch.tensor(tokens, dtype=torch.long), log_q, law, self.vocab_ids)

    def best(self) -> list[int]:
        """The target's arg-max in each row."""
        best: list[int] = (self.hidden @ self.weight.T).argmax(-1).tolist()
        return best


@pytest.fixture
def make_scene() -> Callable[..., Scene]:
    """A scene from a seed; ``noise`` is how far the draft's logits lie from the target's."""

    def make(
        seed: int = 0,
        *,
        length: int = 4,
        size: int = 32,
        vocab: int = 24,
        step: int = 2,
        noise: float = 1.0,
        scale: float = 0.5,
    ) -> Scene:
        generator = torch.Generator().manual_seed(seed)
        hidden = torch.randn(length + 1, size, generator=generator)
        weight = torch.randn(vocab, size, generator=generator) * scale
        vocab_ids = torch.arange(0, vocab, step)
        logits = (hidden[:length] @ weight.T)[:, vocab_ids]
        logits = logits + noise * torch.randn(logits.shape, generator=generator)
        return Scene(hidden, weight, vocab_ids, logits)

    return make
