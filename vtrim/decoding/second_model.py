"""A smaller causal LM with the target's tokenizer as the drafter; it reads tokens, not states.

Shapes: B cache slots, T tokens of each in a pass, L drafted tokens, k ids it may draft, d hidden
size.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vtrim.decoding.cache import TargetCache
from vtrim.decoding.draft_size import check_confidence
from vtrim.decoding.mask import TreeMasks
from vtrim.decoding.protocol import Ask, Proposal
from vtrim.decoding.stepwise import ChainLaw
from vtrim.decoding.verify import check_trees
from vtrim.errors import MismatchError
from vtrim.models.target import Target
from vtrim.vocab import DraftVocab

CHUNK = 512
"""Tokens of one sequence that pass the model at once, at most."""
PATIENCE = 64
"""Tokens that may wait for a round that drafts."""
_SPARE = 16  # columns of the cache behind the longest reply, for the tokens of longer chains


@dataclass
class _Slot:
    """One sequence: its first ``fed`` tokens are in the cache, then those of ``proposal``."""

    fed: int = 0
    proposal: Proposal | None = None

    def resume(self, tokens: Sequence[int]) -> None:
        """Counts the drafted tokens that the sequence took over among those in the cache.

        The last token is always passed anew: its state drafts the next one.
        """
        drafted = [] if self.proposal is None else self.proposal.ids[:-1]  # the last never passed
        for token, taken in zip(drafted, tokens[self.fed :], strict=False):
            if token != taken:
                break
            self.fed += 1
        self.fed = min(self.fed, len(tokens) - 1)
        self.proposal = None


class ModelDrafter:
    """Drafts L tokens with L passes of a model that keeps its own cache.

    All sequences of a call share each pass. What was drafted and kept stays in the cache, so each
    token passes the model once; a round of L = 0 costs next to nothing, its tokens wait for the
    next pass. min_confidence: as ``ChainDrafter``.
    """

    def __init__(
        self,
        model: Target,
        target: Target,
        vocab: DraftVocab | None = None,
        *,
        min_confidence: float = 0.0,
    ) -> None:
        """vocab: the ids it may draft; None is all that both models have rows for.

        Raises:
            MismatchError: the vocabulary has ids that one of the models has no row for.
            OptionError: ``min_confidence`` is no probability below 1.
        """
        check_confidence(min_confidence)
        self.model = model
        limit = getattr(model.config, "max_position_embeddings", None)
        self.context_length = sys.maxsize if limit is None else int(limit)
        self.vocab_ids, head = _head(model, target, vocab)
        self._chains = ChainLaw(head, self.vocab_ids, min_confidence)
        self._rows = model.embedding.shape[0]
        self._cache = TargetCache(model.config, 1, 0, whose=f"the draft model {model.name}")
        self._masks = TreeMasks(model.config, self._cache, self.context_length)
        self._takes_masks = False
        self._slots: list[_Slot] = []

    def open(self, slots: int, capacity: int) -> None:
        """Forgets everything; makes room for ``slots`` sequences of ``capacity`` tokens."""
        self._cache.reset()
        self._cache.reserve(slots, capacity + _SPARE)
        self._slots = [_Slot() for _ in range(slots)]

    def prefill(self, slot: int, tokens: Sequence[int], aux: Tensor) -> None:
        """Starts a sequence with its prompt; the target's states are not looked at."""
        del aux
        self._slots[slot] = _Slot()
        self._cache.rollback(0, slot)
        self._take_in(slot, tokens, 0)

    def propose(
        self, asks: Sequence[Ask], num_draft_tokens: int, *, temperature: float, seed: int
    ) -> list[Proposal]:
        """The chain behind each sequence."""
        lengths = [max(0, min(num_draft_tokens, ask.room)) for ask in asks]
        for ask in asks:
            slot = self._slots[ask.slot]
            slot.resume(ask.tokens)
            self._cache.rollback(slot.fed, ask.slot)
            self._take_in(ask.slot, ask.tokens, CHUNK if max(lengths) else PATIENCE)
        if max(lengths, default=0) == 0:
            return [Proposal.nothing(self.model.device) for _ in asks]
        proposals = self._chains.draft(
            asks,
            lengths,
            self._catch_up(asks),
            lambda tokens, _hidden, _count: self._step(asks, tokens),
            temperature=temperature,
            seed=seed,
        )
        for ask, proposal in zip(asks, proposals, strict=True):
            self._slots[ask.slot].proposal = proposal
        return proposals

    def _take_in(self, slot: int, tokens: Sequence[int], most: int) -> None:
        """Passes the tokens that wait, so that at most ``most`` of them go on waiting."""
        place = self._slots[slot]
        while len(tokens) - place.fed > most:
            chunk = tokens[place.fed : place.fed + CHUNK]
            self._pass(range(slot, slot + 1), self._ids([chunk]), [len(chunk)])
            place.fed += len(chunk)

    def _catch_up(self, asks: Sequence[Ask]) -> Tensor:
        """Passes every token that waits; the last state of each sequence [len(asks), d]."""
        slots = _span(asks)
        waiting: list[Sequence[int]] = [()] * len(slots)
        for ask in asks:
            waiting[ask.slot - slots.start] = ask.tokens[self._slots[ask.slot].fed :]
            self._slots[ask.slot].fed = len(ask.tokens)
        hidden = self._pass(slots, self._ids(waiting), [len(tokens) for tokens in waiting])
        rows = [ask.slot - slots.start for ask in asks]
        return hidden[rows, [len(waiting[row]) - 1 for row in rows]]

    def _step(self, asks: Sequence[Ask], tokens: Tensor) -> Tensor:
        """The states behind the tokens drafted last. tokens: [len(asks)] -> [len(asks), d]."""
        slots = _span(asks)
        if len(slots) == 1:
            return self._pass(slots, tokens[:, None], [1])[:, -1]
        rows = [ask.slot - slots.start for ask in asks]
        ids = tokens.new_zeros(len(slots), 1)
        ids[rows, 0] = tokens
        return self._pass(slots, ids, [int(row in rows) for row in range(len(slots))])[rows, -1]

    def _ids(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """[B, T] token ids, 0 behind the shorter rows."""
        width = max(map(len, rows))
        padded = [[*row, *([0] * (width - len(row)))] for row in rows]
        return torch.tensor(padded, device=self.model.device)

    def _pass(self, slots: range, ids: Tensor, counts: Sequence[int]) -> Tensor:
        """The final states [B, T, d] of ids [B, T] behind what each slot's cache holds.

        counts: [B] ids of each that count and stay; what is behind them pads, and is forgotten.
        """
        cache, width = self._cache, ids.shape[1]
        held = [cache.lengths[slot] for slot in slots]
        cache.reserve(cache.slots, max(held) + width)
        cache.aim_at(slots, width, ids.device)
        known = ids.clamp(max=self._rows - 1)  # the target may emit a padding id that has no row
        if len(slots) == 1:
            hidden = self.model.forward(known, cache=cache).hidden
        else:
            self._check_masks()
            chain = replace(Proposal.nothing(ids.device), tokens=ids[0, 1:])
            mask, positions = self._masks.make([chain] * len(slots), held, ids.device)
            hidden = self.model.forward(
                known, position_ids=positions, attention_mask=mask, cache=cache
            ).hidden
        for slot, start, count in zip(slots, held, counts, strict=True):
            cache.rollback(start + count, slot)
        return hidden

    def _check_masks(self) -> None:
        if not self._takes_masks:
            check_trees(self.model)
            self._takes_masks = True


def _span(asks: Sequence[Ask]) -> range:
    """The slots from the first asked for to the last; the cache is read as one piece."""
    slots = [ask.slot for ask in asks]
    return range(min(slots), max(slots) + 1)


def _head(
    model: Target, target: Target, vocab: DraftVocab | None
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The ids [k] the model may draft, ascending, and its head path for them: [B, d] -> [B, k]."""
    rows = min(model.vocab_size, target.vocab_size)  # tables of one tokenizer are padded apart
    if vocab is None:
        ids = torch.arange(rows, device=model.device)
        return ids, (model.logits if rows == model.vocab_size else model.head_of(ids))
    if vocab.target_vocab_size != target.vocab_size or vocab.ids[-1] >= rows:
        raise MismatchError(
            f"the draft vocabulary was made for a head of {vocab.target_vocab_size:,} rows and its "
            f"ids reach {vocab.ids[-1]}; {target.name} has {target.vocab_size:,} rows and "
            f"{model.name} {model.vocab_size:,}. Give one that was chosen for this target."
        )
    ids = torch.from_numpy(vocab.ids).to(model.device)
    return ids, (model.logits if vocab.size == model.vocab_size else model.head_of(ids))
