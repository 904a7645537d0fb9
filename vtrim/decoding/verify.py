"""One target forward over the last tokens of all sequences and what was drafted behind them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from vtrim.decoding.cache import TargetCache
from vtrim.decoding.mask import TreeMasks
from vtrim.decoding.protocol import ROOT, Proposal
from vtrim.errors import InputError
from vtrim.models.target import Target, TargetStates


class Verifier:
    """The target with its cache; the i-th live sequence has slot i."""

    def __init__(
        self, target: Target, cache: TargetCache, context_length: int, *, checked: bool = False
    ) -> None:
        """checked: the target is known to take masks; else the first need of one checks it."""
        self.target = target
        self.cache = cache
        self.masks = TreeMasks(target.config, cache, context_length)
        self._checked = checked

    def prefill(self, slot: int, tokens: Sequence[int]) -> TargetStates:
        """States [1, T] of more tokens of one sequence."""
        device = self.target.device
        self.cache.aim_at(range(slot, slot + 1), len(tokens), device)
        return self.target.forward(torch.tensor([tokens], device=device), cache=self.cache)

    def states(self, last: Sequence[int], proposals: Sequence[Proposal]) -> TargetStates:
        """States [B, T] of each sequence's last token and drafted ones; padding behind them.

        Raises:
            InputError: a tree or a batch, and the target's attention does not take masks.
        """
        device = self.target.device
        width = 1 + max(proposal.size for proposal in proposals)
        lengths = self.cache.lengths[: len(last)]
        self.cache.reserve(len(last), max(lengths) + width)
        self.cache.aim_at(range(len(last)), width, device)
        ids = _ids(last, proposals, device)
        if len(last) == 1 and proposals[0].is_chain:
            return self.target.forward(ids, cache=self.cache)
        if not self._checked:
            check_trees(self.target)
            self._checked = True
        mask, positions = self.masks.make(proposals, lengths, device)
        return self.target.forward(
            ids, position_ids=positions, attention_mask=mask, cache=self.cache
        )


def _ids(last: Sequence[int], proposals: Sequence[Proposal], device: torch.device) -> Tensor:
    """[B, T] token ids, 0 behind the shorter proposals."""
    first = torch.tensor(last, device=device)[:, None]
    rows = [torch.cat(pair) for pair in zip(first, (p.tokens for p in proposals), strict=True)]
    return rows[0][None] if len(rows) == 1 else pad_sequence(rows, batch_first=True)


def check_trees(target: Target) -> None:
    """Proves on two small trees, side by side, that the target takes masks and positions.

    Raises:
        InputError: its rows differ from those of separate chains, or its attention takes no mask.
    """
    trees = [_tree([-1, -1, 0, 0, 2], target), _tree([-1, 0, -1], target)]
    prompts = [_some_ids(target, 3, 1), _some_ids(target, 6, 50)]
    verifier = Verifier(target, TargetCache(target.config, 2, 16), sys.maxsize, checked=True)
    try:
        for slot, prompt in enumerate(prompts):
            verifier.prefill(slot, prompt[:-1])
        ours = verifier.states([prompt[-1] for prompt in prompts], trees).hidden
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"{_refusal(target)} ({reason}).") from error
    difference, effect, size = 0.0, 0.0, 0.0
    for hidden, prompt, tree in zip(ours, prompts, trees, strict=True):
        flat = target.forward(torch.tensor([[*prompt, *tree.ids]], device=target.device)).hidden[0]
        for node in range(tree.size):
            path = _path(tree, node)
            ids = torch.tensor([[*prompt, *(tree.ids[i] for i in path)]], device=target.device)
            right = target.forward(ids).hidden[0, -1].float()
            difference += float((hidden[node + 1].float() - right).square().sum())
            effect += float((flat[len(prompt) + node].float() - right).square().sum())
            size += float(right.square().sum())
    rounding = torch.finfo(target.dtype).eps * 4
    # Judged against what reading the tree as one text would change, and against rounding.
    if not difference**0.5 <= max(0.1 * effect**0.5, rounding * size**0.5):
        raise InputError(f"{_refusal(target)}.")


def _refusal(target: Target) -> str:
    kind = getattr(target.config, "model_type", "unknown")
    return (
        f"{target.name}: the attention of this target (model_type '{kind}') does not take a mask "
        "of its own for each row, which trees and batches need; draft a chain for one sequence at "
        "a time (--drafter eagle, --batch-size 1)"
    )


def _some_ids(target: Target, count: int, first: int) -> list[int]:
    return [(first + 7 * i) % target.vocab_size for i in range(count)]


def _tree(parents: list[int], target: Target) -> Proposal:
    tokens = torch.tensor(_some_ids(target, len(parents), 5), device=target.device)
    nothing = Proposal.nothing(target.device)
    return replace(nothing, tokens=tokens, parents=tuple(parents))


def _path(tree: Proposal, node: int) -> list[int]:
    """The nodes from the root down to ``node``."""
    path, parents = [], tree.parents or ()
    while node != ROOT:
        path.append(node)
        node = parents[node]
    return path[::-1]
