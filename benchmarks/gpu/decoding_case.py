"""The pairs of target and draft that decoding.py measures, and the ways each one decodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from shapes import LLAMA31_8B, SMOLLM2_135M, TINY, random_target
from torch import Tensor, nn
from torch.nn import functional as F

from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.drafters import EagleOptions, TreeOptions, make_drafter
from vtrim.decoding.protocol import Acceptor, Drafter
from vtrim.models.draft import Eagle3Draft, Head
from vtrim.models.lean import LeanTarget, fast_target
from vtrim.models.lean_draft import LeanDraft, fast_draft
from vtrim.models.target import Target, load_target
from vtrim.shape import DraftShape

GIB = 1024**3
HEADS = 5  # K
LEAN, OWN = "lean", "transformers"
_TOKEN, _BIAS = 7, 100.0  # what both heads say everywhere; far above any logit


@dataclass(frozen=True)
class Source:
    """Where a pair comes from: the target's shape, the draft's vocabulary and the tree's shape."""

    name: str
    shape: dict[str, Any]
    draft_vocab_size: int
    tree: TreeOptions = field(default_factory=TreeOptions)


SOURCES = (Source("smollm2", SMOLLM2_135M, 8192), Source("llama8b", LLAMA31_8B, 32_000))
_TINY_TREE = TreeOptions(total_token=8, depth=2, top_k=3)


def tiny(source: Source) -> Source:
    """The same with toy sizes."""
    return replace(source, shape=TINY, draft_vocab_size=128, tree=_TINY_TREE)


@dataclass(frozen=True)
class Cell:
    """One way to decode.

    drafts: none, chain or tree; length: L; rule: plain, greedy, or a criterion of DropMatch;
    forward: of the target, lean or transformers' own.
    """

    drafts: str
    length: int
    rule: str
    forward: str = LEAN

    @property
    def baseline(self) -> Cell:
        """Plain decoding through the same forward."""
        return Cell("none", 0, "plain", self.forward)

    @property
    def exact(self) -> Cell:
        """The same drafts under exact matching."""
        return replace(self, rule="greedy")

    def acceptor(self) -> Acceptor | None:
        """Its rule, with the paper's K and p; None for plain decoding."""
        if self.rule == "plain":
            return None
        if self.rule == "greedy":
            return make_acceptor("greedy")
        return make_acceptor("dropmatch", heads=HEADS, criterion=self.rule)


@dataclass
class Pair:
    """A target by forward, and a draft. notes: why something is not decoded the lean way."""

    source: Source
    targets: dict[str, Target]
    draft: Eagle3Draft
    notes: list[str]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All ways to decode; without a lean forward they go through transformers' own."""
        depth = self.source.tree.depth + 1
        found = [
            Cell("none", 0, "plain"),
            *(Cell("chain", n, rule) for n in (3, 5) for rule in ("greedy", "naive", "full")),
            *(Cell("tree", depth, rule) for rule in ("greedy", "naive")),
            Cell("none", 0, "plain", OWN),
            Cell("chain", 5, "greedy", OWN),
        ]
        if LEAN not in self.targets:
            found = [replace(cell, forward=OWN) for cell in found]
        return tuple(dict.fromkeys(found))

    def drafter(self, cell: Cell, target: Target) -> Drafter | None:
        """A fresh drafter: the cache of the one before is free."""
        if cell.drafts == "none":
            return None
        options = EagleOptions() if cell.drafts == "chain" else self.source.tree
        return make_drafter(options, target, draft=self.draft)

    def summary(self) -> dict[str, Any]:
        """Name, sizes, and what decodes."""
        target = self.targets[OWN]
        return {
            "name": self.source.name,
            "weights": target.name,
            "hidden_size": int(target.config.hidden_size),
            "num_layers": target.num_layers,
            "target_vocab_size": target.vocab_size,
            "draft_vocab_size": int(self.draft.vocab_ids.shape[0]),
            "target_weights_gib": _gib(target.model),
            "draft_weights_gib": _gib(self.draft),
            "lean_forward": LEAN in self.targets,
            "lean_draft": isinstance(self.draft, LeanDraft),
            "notes": self.notes,
        }


def make_pair(source: Source, name: str | None, device: str) -> Pair:
    """A pair with random weights; ``name``: a target whose weights are loaded instead."""
    if name is None:
        target = random_target(source.shape, device)
    else:
        target = load_target(name, dtype=torch.bfloat16, device=device)
    head = target.model.get_output_embeddings()
    head.bias = nn.Parameter(_bias(head.weight), requires_grad=False)
    notes: list[str] = []
    size = min(source.draft_vocab_size, target.vocab_size)
    draft = fast_draft(_random_draft(target, size, device), notes.append)
    targets = {OWN: target}
    try:
        lean = fast_target(target, notes.append)
        if isinstance(lean, LeanTarget):
            targets[LEAN] = lean
    except RuntimeError as error:  # a graph that a card refuses; the rest can still be measured
        notes.append(f"the lean forward failed: {error}")
    return Pair(source, targets, draft, notes)


class _BiasedHead(Head):
    """A draft's head with a bias, which no real draft has."""

    def forward(self, hidden: Tensor, through: Callable[[Tensor, Tensor], Any] = F.linear) -> Any:
        """hidden: [..., d]."""
        return through(hidden, self.weight) + self.bias


def _random_draft(target: Target, size: int, device: str) -> Eagle3Draft:
    """A draft over the first ``size`` ids, in the target's dtype, made where it stays."""
    shape = DraftShape.from_target_config(target.config.to_dict())
    torch.manual_seed(1)
    with torch.device(device):
        draft = Eagle3Draft(shape, torch.arange(size)).to(target.dtype)
        draft.lm_head = _BiasedHead(shape.hidden_size, size, dtype=target.dtype)
    draft.lm_head.bias = nn.Parameter(_bias(draft.lm_head.weight))
    return draft.eval().requires_grad_(False)


def _bias(weight: Tensor) -> Tensor:
    bias = weight.new_zeros(weight.shape[0])
    bias[_TOKEN] = _BIAS
    return bias


def _gib(module: nn.Module) -> float:
    return round(sum(p.nbytes for p in module.parameters()) / GIB, 3)
