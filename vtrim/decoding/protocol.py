"""What a drafter hands to the target, what an acceptor sees, and what it answers.

Shapes: L drafted tokens, V target vocabulary, k draft vocabulary, d hidden size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Proposal:
    """A chain of drafted tokens and the law each was drawn from.

    tokens: [L] target ids. log_q: [L, k] log-probabilities over the draft vocabulary of the law
    really drawn from (temperature included), fp32; None for a one-hot (greedy) proposal.
    log_q_soft: [L, k] the draft's own distribution for rules that compare distributions, fp32
    (temperature 1 when decoding greedily, else the temperature of ``log_q``; never filtered).
    vocab_ids: [k] target id of each draft id, ascending.
    """

    tokens: Tensor
    log_q: Tensor | None
    log_q_soft: Tensor
    vocab_ids: Tensor


@dataclass(frozen=True, slots=True)
class Verification:
    """The target's view of a proposal.

    hidden: [L+1, d] final normed states; logits: [L+1, V] clean logits (row j judges drafted token
    j, row L gives the bonus token); head: the target's own head path, [..., d] -> [..., V];
    temperature: 0 is greedy; position: absolute position of the first drafted token; prompt: index
    of the prompt, part of every random seed; top_k and top_p: filters of the target's law.
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
    """Outcome of one round: accepted draft tokens, then one token from the target."""

    num_accepted: int
    next_token: int
    reasons: tuple[str, ...]  # why each accepted token passed, for the report


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

    def accept(self, proposal: Proposal, view: Verification) -> Verdict:
        """Judges one proposal; random draws come from (seed, prompt, position) only."""
        ...


class Drafter(Protocol):
    """What proposes tokens: a chain, a tree or a second model; it keeps its own cache."""

    context_length: int

    def start(self, capacity: int) -> None:
        """Forgets everything; makes room for ``capacity`` tokens."""
        ...

    def extend(self, aux: Tensor, tokens: Tensor) -> Tensor:
        """Takes in R rows of target states, aux [1, R, 3d], and the token behind each, [R]."""
        ...

    def propose(
        self,
        aux: Tensor,
        tokens: Tensor,
        num_draft_tokens: int,
        *,
        temperature: float,
        seed: tuple[int, int],
    ) -> Proposal:
        """Takes in R rows as ``extend`` does, then drafts; ``seed`` is (seed, prompt)."""
        ...
