"""An EAGLE-3 draft over the rows of many sequences: its key/value cache, and passes over it.

Row i of a sequence pairs the target's states f_i with the embedding of token i+1 and sits at RoPE
position i. Rows made from the target's states are committed; the rows behind them belong to the
tokens being drafted, feed back the draft's own pre-norm output, and are overwritten in the next
round: what was accepted is made anew from fresh states. Shapes: B sequences, T rows of each in a
pass, S rows of the cache that are read, d hidden size, n_kv key/value heads, d_h head size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from vtrim.decoding.protocol import Ask, Proposal
from vtrim.models.draft import Attend, Eagle3Draft
from vtrim.shape import DraftShape

CHUNK = 512
"""Rows of one sequence that are committed in one pass at most."""
PATIENCE = 16
"""Rows of one sequence that may wait for a round that drafts, at most."""


@dataclass(frozen=True, slots=True)
class Slots:
    """Slots [B] on the device; span: the same as a slice, where they lie side by side."""

    lines: Tensor
    span: slice | None

    @staticmethod
    def of(lines: Tensor, slots: Sequence[int]) -> Slots:
        """lines: [B] ``slots`` on the device."""
        together = list(slots) == list(range(slots[0], slots[0] + len(slots)))
        return Slots(lines, slice(slots[0], slots[0] + len(slots)) if together else None)


class DraftCache:
    """Keys and values [slots, n_kv, capacity + 1, d_h]; ``committed`` counts each slot's rows.

    The last row takes what falls beyond: padding, and drafted tokens without room; nobody reads it.
    """

    def __init__(self, shape: DraftShape, slots: int, capacity: int, like: Tensor) -> None:
        """like: any weight of the draft, for dtype and device."""
        sizes = (slots, shape.num_key_value_heads, capacity + 1, shape.head_dim)
        # Zeros: a masked row still enters a product, and what was never written may be NaN.
        self.keys = torch.zeros(sizes, dtype=like.dtype, device=like.device)
        self.values = torch.zeros_like(self.keys)
        self.slots, self.capacity = slots, capacity
        self.committed = [0] * slots

    def write(self, slot: int, start: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Puts [1, n_kv, T, d_h] at rows start..start+T-1 of a slot; returns all rows up to there.

        The result is a view [1, n_kv, start + T, d_h].
        """
        end = start + keys.shape[2]
        self.keys[slot, :, start:end] = keys[0]
        self.values[slot, :, start:end] = values[0]
        return self.keys[slot : slot + 1, :, :end], self.values[slot : slot + 1, :, :end]

    def scatter(
        self, slots: Slots, rows: Tensor, end: int, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Puts [B, n_kv, T, d_h] at ``rows`` [B, T] of the slots; returns rows 0..end-1.

        The result is a view where the slots lie side by side.
        """
        rows, lines = rows.clamp(max=self.capacity), slots.lines[:, None]
        self.keys[lines, :, rows] = keys.transpose(1, 2)
        self.values[lines, :, rows] = values.transpose(1, 2)
        where = slots.lines if slots.span is None else slots.span
        return self.keys[where, :, :end], self.values[where, :, :end]


@dataclass(frozen=True, slots=True)
class Batch:
    """The sequences of a call to ``propose`` whose rows are committed.

    hidden: [B, 1, d] pre-norm output of each one's last row. base: its number of committed rows,
    the position of the next row; slots and bases [B] on the device: None for a single sequence.
    """

    asks: Sequence[Ask]
    hidden: Tensor
    base: list[int]
    slots: Slots | None
    bases: Tensor | None


class DraftRows(ABC):
    """What every EAGLE drafter keeps: the draft, its rows of each slot, and passes over them.

    Rounds that draft nothing cost next to nothing: their rows wait for the next pass.
    """

    spare = 0  # rows that drafting needs behind the committed ones, beyond a sequence's capacity

    def __init__(self, draft: Eagle3Draft, embedding: Tensor) -> None:
        """embedding: [V, d] the target's input embedding, unscaled."""
        self.draft = draft
        self.embedding = embedding
        self.context_length = draft.shape.max_position_embeddings
        self.dtype = draft.fc.weight.dtype
        self._groups = draft.shape.num_attention_heads // draft.shape.num_key_value_heads
        self.cache = DraftCache(draft.shape, 0, 0, draft.fc.weight)
        self._waiting: dict[int, Tensor] = {}  # [R, 3d] of a slot's rows that are not committed

    @abstractmethod
    def grow(
        self, batch: Batch, lengths: list[int], *, temperature: float, seed: int
    ) -> list[Proposal]:
        """A proposal a sequence of the batch, none deeper than its length; one is not 0."""

    def open(self, slots: int, capacity: int) -> None:
        """Forgets everything; makes room for ``slots`` sequences of ``capacity`` rows."""
        rows = capacity + self.spare
        if self.cache.slots < slots or self.cache.capacity < rows:
            self.cache = DraftCache(self.draft.shape, slots, rows, self.draft.fc.weight)
        self.cache.committed = [0] * self.cache.slots
        self._waiting.clear()

    def prefill(self, slot: int, tokens: Sequence[int], aux: Tensor) -> None:
        """Commits the first R rows of a sequence, some hundred at a time. aux: [R, 3d]."""
        self.cache.committed[slot] = 0
        self._waiting.pop(slot, None)
        self._commit_in_chunks(slot, tokens[1 : aux.shape[0] + 1], aux)

    def propose(
        self, asks: Sequence[Ask], num_draft_tokens: int, *, temperature: float, seed: int
    ) -> list[Proposal]:
        """What ``grow`` gives for each sequence."""
        whole = [self._with_waiting(ask) for ask in asks]
        if max((min(num_draft_tokens, ask.room) for ask in asks), default=0) <= 0:
            for ask in whole:
                self._let_wait(ask)
            return [Proposal.nothing(self.cache.keys.device) for _ in asks]
        batch = self.commit(sorted(whole, key=lambda ask: ask.slot))
        lengths = [max(0, min(num_draft_tokens, ask.room)) for ask in batch.asks]
        proposals = self.grow(batch, lengths, temperature=temperature, seed=seed)
        of_slot = {ask.slot: drafted for ask, drafted in zip(batch.asks, proposals, strict=True)}
        return [of_slot[ask.slot] for ask in asks]

    def _with_waiting(self, ask: Ask) -> Ask:
        """The ask with the rows that waited before its own."""
        waiting = self._waiting.pop(ask.slot, None)
        return ask if waiting is None else replace(ask, aux=torch.cat((waiting, ask.aux)))

    def _let_wait(self, ask: Ask) -> None:
        """Keeps an ask's rows for later, or commits them where they are many."""
        if ask.aux.shape[0] > PATIENCE:
            self._commit_in_chunks(ask.slot, ask.fresh, ask.aux)
        else:
            self._waiting[ask.slot] = ask.aux

    def commit(self, asks: Sequence[Ask]) -> Batch:
        """Commits every sequence's fresh rows in one pass; rows of different number are padded."""
        if len(asks) == 1:
            ask = asks[0]
            split = max(0, len(ask.fresh) - CHUNK)
            self._commit_in_chunks(ask.slot, ask.fresh[:split], ask.aux[:split])
            out = self._commit(ask.slot, ask.fresh[split:], ask.aux[split:])
            # A slice [:, i:j] keeps the stride of its whole in dimension 0, and a product with it
            # then runs as a batch: 8 times slower in bf16 on a CPU.
            return Batch(asks, out[0, -1:][None], [self.cache.committed[ask.slot]], None, None)
        return self._commit_many(asks)

    def _commit_in_chunks(self, slot: int, tokens: Sequence[int], aux: Tensor) -> None:
        for first in range(0, aux.shape[0], CHUNK):
            self._commit(slot, tokens[first : first + CHUNK], aux[first : first + CHUNK])

    def _commit(self, slot: int, tokens: Sequence[int], aux: Tensor) -> Tensor:
        """Commits R rows of one slot; their pre-norm outputs [1, R, d]."""
        start = self.cache.committed[slot]
        ids = torch.tensor(tokens, device=aux.device)[None]
        out = self.one(slot, start, start, ids, self.draft.fuse(aux.to(self.dtype))[None], None)
        self.cache.committed[slot] = start + len(tokens)
        return out

    def _commit_many(self, asks: Sequence[Ask]) -> Batch:
        for ask in asks:  # a long prompt alone, lest the others are padded to its length
            split = max(0, len(ask.fresh) - CHUNK)
            self._commit_in_chunks(ask.slot, ask.fresh[:split], ask.aux[:split])
        device = self.cache.keys.device
        counts = [min(len(ask.fresh), CHUNK) for ask in asks]
        width, old = max(counts), [self.cache.committed[ask.slot] for ask in asks]
        ids = torch.zeros(len(asks), width, dtype=torch.long)
        for line, (ask, count) in enumerate(zip(asks, counts, strict=True)):
            ids[line, :count] = torch.tensor(ask.fresh[-count:])
        aux = [ask.aux[-count:] for ask, count in zip(asks, counts, strict=True)]
        places = [ask.slot for ask in asks]
        numbers = torch.tensor([places, old, counts]).to(device)
        slots, starts, sizes = Slots.of(numbers[0], places), numbers[1], numbers[2]
        rows = starts[:, None] + torch.arange(width, device=device)
        end = max(start + count for start, count in zip(old, counts, strict=True))
        seen = torch.arange(end, device=device) <= rows[:, :, None]
        fused = self.draft.fuse(torch.nn.utils.rnn.pad_sequence(aux, True).to(self.dtype))
        out = self.many(slots, rows, rows, ids.to(device), fused, seen)
        for ask, start, count in zip(asks, old, counts, strict=True):
            self.cache.committed[ask.slot] = start + count
        last = out.gather(1, (sizes - 1)[:, None, None].expand(-1, 1, out.shape[2]))
        base = [start + count for start, count in zip(old, counts, strict=True)]
        return Batch(asks, last, base, slots, starts + sizes)

    def one(
        self,
        slot: int,
        start: int,
        position: int | Tensor,
        tokens: Tensor,
        hidden: Tensor,
        seen: Tensor | None,
    ) -> Tensor:
        """One pass over T rows of a slot, from cache row ``start`` on; pre-norm outputs [1, T, d].

        position: the first row's, or [1, T]. tokens: [1, T]; hidden: [1, T, d]; seen: [T, S] the
        rows that each attends to, None for all before it.
        """
        if isinstance(position, int):
            count = tokens.shape[1]
            position = torch.arange(position, position + count, device=tokens.device)[None]

        def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            keys, values = self.cache.write(slot, start, keys, values)
            rows = queries.shape[2]
            if seen is None and start == 0 and rows > 1:
                keys = keys.repeat_interleave(self._groups, dim=1)
                values = values.repeat_interleave(self._groups, dim=1)
                return F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
            mask = seen
            if seen is None and rows > 1:
                whole = torch.ones(rows, start + rows, dtype=torch.bool, device=queries.device)
                mask = whole.tril(start)
            return self._packed(queries, keys, values, None if mask is None else mask[None])

        return self._step(tokens, hidden, position, attend)

    def many(
        self,
        slots: Slots,
        rows: Tensor,
        positions: Tensor,
        tokens: Tensor,
        hidden: Tensor,
        seen: Tensor,
    ) -> Tensor:
        """One pass over T rows of B slots; pre-norm outputs [B, T, d].

        rows, positions, tokens: [B, T]; hidden: [B, T, d]; seen: [B, T, S].
        """

        def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            keys, values = self.cache.scatter(slots, rows, seen.shape[2], keys, values)
            return self._packed(queries, keys, values, seen)

        return self._step(tokens, hidden, positions, attend)

    def _step(self, tokens: Tensor, hidden: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        embeds = F.embedding(tokens, self.embedding).to(self.dtype)
        return self.draft.step(embeds, hidden, positions, attend)

    def _packed(self, queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
        """Attention where query heads that share a key head are rows of one head.

        The keys are read once. queries: [B, n_h, T, d_h]; seen: [B, T, S], None for all rows.
        """
        batch, _, rows, size = queries.shape
        packed = queries.reshape(batch, keys.shape[1], self._groups * rows, size)
        mask = None if seen is None else seen.repeat(1, self._groups, 1)[:, None]
        context = F.scaled_dot_product_attention(packed, keys, values, attn_mask=mask)
        return context.reshape(queries.shape)
