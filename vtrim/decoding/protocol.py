"""What a drafter hands to the target, what an acceptor sees, and what it answers.

A proposal is a tree of drafted tokens below the last token of one sequence; a chain is a tree
without branches. Shapes: N drafted tokens, V target vocabulary, k draft vocabulary, d hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

ROOT = -1
"""Parent of the tokens drafted right behind the sequence's last token."""


@dataclass(frozen=True)
class Proposal:
    """Drafted tokens and the law each was drawn from.

    tokens: [N] target ids. parents: for each token the index of the one before it, or ``ROOT``;
    parents come first, siblings in the drafter's order of preference; None is a chain.
    log_q: [N, k] log-probabilities over the draft vocabulary of the law really drawn from
    (temperature included), fp32; None for one-hot proposals (greedy chains, trees, n-grams).
    log_q_soft: [N, k] the draft's own distribution at each token, for rules that compare
    distributions, fp32 (temperature 1 when decoding greedily, else the temperature of ``log_q``;
    never filtered). vocab_ids: [k] target id of each draft id, ascending.
    """

    tokens: Tensor
    log_q: Tensor | None
    log_q_soft: Tensor
    vocab_ids: Tensor
    parents: tuple[int, ...] | None = None

    @staticmethod
    def nothing(device: torch.device) -> Proposal:
        """A proposal of no token: the target gives one itself."""
        none = torch.empty(0, dtype=torch.long, device=device)
        return Proposal(none, None, torch.empty(0, 0, device=device), none)

    @property
    def size(self) -> int:
        """Number of drafted tokens, N."""
        return int(self.tokens.shape[0])

    @cached_property
    def ids(self) -> list[int]:
        """``tokens`` on the host."""
        ids: list[int] = self.tokens.tolist()
        return ids

    def fetch(self, numbers: Tensor) -> list[int]:
        """Whole numbers [n] on the host; ``ids`` come along, in one transfer from the device."""
        if "ids" in vars(self):
            return [int(number) for number in numbers.tolist()]
        both: list[int] = torch.cat((self.tokens, numbers)).tolist()
        vars(self)["ids"] = both[: self.size]  # where cached_property looks for it
        return both[self.size :]

    @cached_property
    def token_q(self) -> list[float]:
        """[N] on the host: q of each drafted token under the law it was drawn from; 1 if one-hot.

        Read from the device at once.
        """
        if self.log_q is None:
            return [1.0] * self.size
        index = torch.searchsorted(self.vocab_ids, self.tokens)
        q: list[float] = self.log_q.gather(1, index[:, None])[:, 0].exp().tolist()
        return q

    def row_depth(self, row: int) -> int:
        """Depth of the tokens that a row of the view judges; 0 for row 0."""
        return 0 if row == 0 else self.depths[row - 1] + 1

    @property
    def is_chain(self) -> bool:
        """Whether no token has siblings."""
        return self.parents is None or self.parents == tuple(range(-1, self.size - 1))

    @cached_property
    def children(self) -> dict[int, list[int]]:
        """The tokens behind each token, and behind ``ROOT``, in order of preference."""
        children: dict[int, list[int]] = {}
        parents = range(-1, self.size - 1) if self.parents is None else self.parents
        for node, parent in enumerate(parents):
            children.setdefault(parent, []).append(node)
        return children

    @property
    def depth(self) -> int:
        """Drafted tokens on the longest path."""
        return self.size if self.parents is None else max(self.depths, default=-1) + 1

    @cached_property
    def depths(self) -> list[int]:
        """[N] number of drafted tokens before each; 0 right behind the sequence."""
        if self.parents is None:
            return list(range(self.size))
        depths: list[int] = []
        for parent in self.parents:
            depths.append(0 if parent == ROOT else depths[parent] + 1)
        return depths


@dataclass(frozen=True, slots=True)
class Verification:
    """The target's view of a proposal.

    hidden: [N+1, d] final normed states; logits: [N+1, V] clean logits, fp32. Row 0 stands behind
    the sequence's last token and row n + 1 behind drafted token n, so row ``parent + 1`` judges a
    token. head: the target's own head path, [..., d] -> [..., V]; temperature: 0 is greedy;
    position: absolute position of the tokens right behind the sequence; prompt: index of the
    prompt, part of every random seed; top_k and top_p: filters of the target's law.
    """

    hidden: Tensor
    logits: Tensor
    head: Callable[[Tensor], Tensor]
    temperature: float
    position: int
    prompt: int
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of one round: the accepted drafted tokens, root first, then the target's own.

    path: indices in the proposal; reasons: why each accepted token passed, for the report.
    """

    path: tuple[int, ...]
    next_token: int
    reasons: tuple[str, ...]

    @property
    def num_accepted(self) -> int:
        """Number of drafted tokens that are kept."""
        return len(self.path)


class Acceptor(Protocol):
    """A rule that decides how much of a proposal is kept."""

    @property
    def name(self) -> str:
        """Its name in the table of acceptors."""
        ...

    @property
    def lossless(self) -> bool:
        """Whether the output follows the target's own law."""
        ...

    def begin(self, hidden: Tensor, head: Callable[[Tensor], Tensor], prompt: int) -> None:
        """Told once of each sequence, before its first round.

        hidden: [T, d] the states of its prompt, of a long one those of its first tokens.
        """
        ...

    def accept(self, proposal: Proposal, view: Verification) -> Verdict:
        """Judges one proposal; random draws come from (seed, prompt, position) only."""
        ...


@dataclass(frozen=True, slots=True)
class Ask:
    """One sequence that wants drafted tokens.

    slot: its row in the drafter's cache; tokens: prompt and reply so far; aux: [R, 3d] the target's
    states of the R rows that the drafter has not seen, the token behind row i being
    ``tokens[len(tokens) - R + i]``; room: drafted tokens that still fit; prompt: its index.
    """

    slot: int
    tokens: Sequence[int]
    aux: Tensor
    room: int
    prompt: int

    @property
    def fresh(self) -> Sequence[int]:
        """[R] the token behind each row of ``aux``."""
        return self.tokens[len(self.tokens) - self.aux.shape[0] :]


class Drafter(Protocol):
    """What proposes tokens: a chain, a tree, a second model or n-grams; it keeps its own cache."""

    context_length: int

    def open(self, slots: int, capacity: int) -> None:
        """Forgets everything; makes room for ``slots`` sequences of ``capacity`` tokens."""
        ...

    def prefill(self, slot: int, tokens: Sequence[int], aux: Tensor) -> None:
        """Starts a sequence. aux: [R, 3d] of its first R tokens; R < len(tokens).

        The remaining rows come with the first ``Ask``; R may be 0. A slot that was in use starts
        anew.
        """
        ...

    def propose(
        self, asks: Sequence[Ask], num_draft_tokens: int, *, temperature: float, seed: int
    ) -> list[Proposal]:
        """A proposal a sequence, none deeper than ``num_draft_tokens`` or its ``room``.

        0 drafts nothing but takes the rows in.
        """
        ...
