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
    log_q_soft: [L, k] the draft's own distribution for rules that compare distributions
    (temperature 1 when decoding greedily, else the same law as ``log_q``).
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
    of the prompt, part of every random seed.
    """

    hidden: Tensor
    logits: Tensor
    head: Callable[[Tensor], Tensor]
    temperature: float
    position: int
    prompt: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of one round: accepted draft tokens, then one token from the target."""

    num_accepted: int
    next_token: int
    reasons: tuple[str, ...]  # why each accepted token passed, for the report


class Acceptor(Protocol):
    """A rule that decides how much of a proposal is kept."""

    name: str
    lossless: bool

    def accept(self, proposal: Proposal, view: Verification) -> Verdict:
        """Judges one proposal; random draws come from (seed, prompt, position) only."""
        ...
