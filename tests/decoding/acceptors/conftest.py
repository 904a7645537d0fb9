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


@dataclass
class TreeScene:
    """Random states behind each node of a tree, whose siblings are a noisy draft's favourites.

    rows: [N+1, d]; weight: [V, d]; draft_logits: [N+1, k] what the draft thinks behind each row.
    """

    rows: Tensor
    weight: Tensor
    vocab_ids: Tensor
    draft_logits: Tensor
    tokens: list[int]
    parents: list[int]
    position: int = 100

    def view(self, temperature: float, **filters: float) -> Verification:
        logits = self.rows @ self.weight.T
        return Verification(
            self.rows, logits, lambda h: h @ self.weight.T, temperature, self.position, 7, **filters
        )  # type: ignore[arg-type]

    def proposal(self, temperature: float) -> Proposal:
        above = [parent + 1 for parent in self.parents]
        soft = (self.draft_logits[above] / (temperature or 1.0)).log_softmax(-1)
        return Proposal(torch.tensor(self.tokens), None, soft, self.vocab_ids, tuple(self.parents))

    def part(self, root: int, keep: Callable[[int], bool]) -> tuple[TreeScene, list[int]]:
        """The tree behind a node, or its nodes that ``keep``; and their old indices."""
        inside = {root: 0}
        for node, parent in enumerate(self.parents):
            if parent in inside and keep(inside[parent] + 1):
                inside[node] = inside[parent] + 1
        old = [node for node in inside if node != root]
        new = {node: index for index, node in enumerate(old)} | {root: -1}
        depth = 0 if root < 0 else 1 + self.depth(root)
        return TreeScene(
            self.rows[[root + 1, *(node + 1 for node in old)]],
            self.weight,
            self.vocab_ids,
            self.draft_logits[[root + 1, *(node + 1 for node in old)]],
            [self.tokens[node] for node in old],
            [new[self.parents[node]] for node in old],
            self.position + depth,
        ), old

    def depth(self, node: int) -> int:
        return 0 if self.parents[node] < 0 else 1 + self.depth(self.parents[node])


@pytest.fixture
def make_tree() -> Callable[..., TreeScene]:
    """A tree from a seed: ``width`` children a node, ``depth`` levels, breadth first."""

    def make(
        seed: int = 0,
        *,
        width: int = 2,
        depth: int = 3,
        size: int = 32,
        vocab: int = 24,
        step: int = 1,
        noise: float = 0.5,
    ) -> TreeScene:
        generator = torch.Generator().manual_seed(seed)
        nodes = sum(width**level for level in range(1, depth + 1))
        rows = torch.randn(nodes + 1, size, generator=generator)
        weight = torch.randn(vocab, size, generator=generator) * 0.5
        vocab_ids = torch.arange(0, vocab, step)
        logits = (rows @ weight.T)[:, vocab_ids]
        logits = logits + noise * torch.randn(logits.shape, generator=generator)
        parents = [(node // width) - 1 for node in range(nodes)]
        ranked = vocab_ids[logits.topk(width, dim=-1).indices].tolist()
        tokens = [ranked[parent + 1][node % width] for node, parent in enumerate(parents)]
        return TreeScene(rows, weight, vocab_ids, logits, tokens, parents)

    return make
