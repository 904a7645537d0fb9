"""Drafted tokens copied from earlier in the sequence: prompt lookup, without a model.

The last few tokens are looked for earlier in prompt and reply, and what followed them there is
proposed. transformers looks for 2 tokens, then 1; vLLM for 5 unless told otherwise; both take the
earliest place. Here it is 3, then 2, then 1, at the latest place, which a table finds in one step.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

from vtrim.decoding.protocol import Ask, Proposal


class NgramDrafter:
    """Proposes what followed the latest earlier place of the sequence's longest known suffix.

    A copy that reaches the end of the sequence goes on with the tokens it has just drafted, so a
    period shorter than L is repeated.
    """

    def __init__(self, device: torch.device, max_ngram: int = 3, min_ngram: int = 1) -> None:
        """Suffixes of max_ngram tokens are looked for first, then shorter ones to min_ngram."""
        self.device = device
        self.lengths = range(max_ngram, min_ngram - 1, -1)
        self.context_length = sys.maxsize
        self._indices: list[_Index] = []

    def open(self, slots: int, capacity: int) -> None:
        """Forgets everything; ``capacity`` does not matter to a table."""
        del capacity
        self._indices = [_Index(self.lengths) for _ in range(slots)]

    def prefill(self, slot: int, tokens: Sequence[int], aux: torch.Tensor) -> None:
        """Starts a sequence with its prompt; the target's states are not looked at."""
        del aux
        self._indices[slot] = index = _Index(self.lengths)
        index.extend(tokens)

    def propose(
        self, asks: Sequence[Ask], num_draft_tokens: int, *, temperature: float, seed: int
    ) -> list[Proposal]:
        """A copy for each sequence; nothing where no suffix is known."""
        del temperature, seed  # a copy is certain: one-hot at every temperature
        return [self._copy(ask, min(num_draft_tokens, ask.room)) for ask in asks]

    def _copy(self, ask: Ask, length: int) -> Proposal:
        index = self._indices[ask.slot]
        index.extend(ask.tokens)
        start = index.find(ask.tokens)
        if length <= 0 or start is None:
            return Proposal.nothing(self.device)
        period = len(ask.tokens) - start
        return self._certain([ask.tokens[start + step % period] for step in range(length)])

    def _certain(self, drafted: list[int]) -> Proposal:
        """These tokens, each with all of the draft's mass."""
        tokens = torch.tensor(drafted, device=self.device)
        vocab_ids, columns = tokens.unique(return_inverse=True)  # ascending
        soft = torch.full((len(drafted), len(vocab_ids)), -torch.inf, device=self.device)
        soft.scatter_(1, columns[:, None], 0.0)
        return Proposal(tokens=tokens, log_q=None, log_q_soft=soft, vocab_ids=vocab_ids)


class _Index:
    """The place behind each n-gram of a growing sequence, the latest one."""

    def __init__(self, lengths: range) -> None:
        self.lengths = lengths
        self.behind: dict[tuple[int, ...], int] = {}
        self.indexed = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Takes in every place that is new and has a token behind it."""
        for end in range(self.indexed + 1, len(tokens)):
            for length in self.lengths:
                if length <= end:
                    self.behind[tuple(tokens[end - length : end])] = end
        self.indexed = max(self.indexed, len(tokens) - 1)

    def find(self, tokens: Sequence[int]) -> int | None:
        """Where the tokens behind an earlier place of the longest known suffix begin."""
        for length in self.lengths:
            if length < len(tokens):
                start = self.behind.get(tuple(tokens[-length:]))
                if start is not None:
                    return start
        return None
