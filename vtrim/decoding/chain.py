"""A chain of tokens drafted one by one with an EAGLE-3 draft and its own key/value cache.

Row i pairs the target's states f_i with the embedding of token i+1 and sits at RoPE position i.
Rows made from the target's states are committed; rows of the chain, which feed back the draft's own
pre-norm output, are overwritten in the next round and made anew from fresh states if their tokens
were accepted. Shapes: R rows, L drafted tokens, d hidden size, k draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from vtrim.decoding.cache import DraftCache
from vtrim.decoding.protocol import Ask, Proposal
from vtrim.decoding.sampling import Purpose, draw, law
from vtrim.models.draft import Attend, Eagle3Draft


class ChainDrafter:
    """Drafts L tokens: one pass over the rows the target has just judged, then L-1 single rows."""

    def __init__(self, draft: Eagle3Draft, embedding: Tensor) -> None:
        """embedding: [V, d] the target's input embedding, unscaled."""
        self.draft = draft
        self.embedding = embedding
        self.dtype = draft.fc.weight.dtype
        self.context_length = draft.shape.max_position_embeddings
        self._groups = draft.shape.num_attention_heads // draft.shape.num_key_value_heads
        self.cache = DraftCache(draft.shape, 0, draft.fc.weight)

    def open(self, slots: int, capacity: int) -> None:
        """Forgets everything; makes room for ``capacity`` rows."""
        del slots
        if self.cache.capacity < capacity:
            self.cache = DraftCache(self.draft.shape, capacity, self.draft.fc.weight)
        self.cache.committed = 0

    def prefill(self, slot: int, tokens: Sequence[int], aux: Tensor) -> None:
        """Commits the first R rows of a sequence. aux: [R, 3d]."""
        del slot
        self.cache.committed = 0
        if aux.shape[0]:
            self.extend(aux, tokens[1 : aux.shape[0] + 1])

    def extend(self, aux: Tensor, tokens: Sequence[int]) -> Tensor:
        """Commits R rows; returns their pre-norm outputs [1, R, d].

        aux: [R, 3d] the target's states; tokens: [R] the token after each of them.
        """
        hidden = self.draft.fuse(aux.to(self.dtype))[None]
        start = self.cache.committed
        out = self._rows(torch.tensor(tokens, device=aux.device), hidden, start)
        self.cache.committed = start + len(tokens)
        return out

    def propose(
        self, asks: Sequence[Ask], num_draft_tokens: int, *, temperature: float, seed: int
    ) -> list[Proposal]:
        """The chain behind each sequence."""
        return [
            self._chain(ask, min(num_draft_tokens, ask.room), temperature, seed) for ask in asks
        ]

    def _chain(self, ask: Ask, length: int, temperature: float, seed: int) -> Proposal:
        # A slice [:, i:j] keeps the stride of its whole in dimension 0, and a product with it then
        # runs as a batch: 8 times slower in bf16 on a CPU.
        hidden = self.extend(ask.aux, ask.fresh)[0, -1:][None]
        position = self.cache.committed + 1  # of the first drafted token
        drafted: list[Tensor] = []
        scores: list[Tensor] = []
        for step in range(length):
            if step:
                hidden = self._rows(drafted[-1], hidden, position + step - 2)
            logits = self.draft.logits(hidden)[0].float()
            if temperature == 0:
                index = logits.argmax(dim=-1)
            else:
                logits = law(logits, temperature)
                place = (seed, ask.prompt, position + step)
                index = draw(logits.exp(), place, Purpose.DRAFT)
            scores.append(logits)
            drafted.append(self.draft.vocab_ids[index])
        if not drafted:
            return Proposal.nothing(hidden.device)
        log_q = torch.cat(scores).log_softmax(-1)  # changes nothing where a law was drawn from
        return Proposal(
            tokens=torch.cat(drafted),
            log_q=log_q if temperature > 0 else None,
            log_q_soft=log_q,
            vocab_ids=self.draft.vocab_ids,
        )

    def _rows(self, tokens: Tensor, hidden: Tensor, start: int) -> Tensor:
        """One pass of the draft's layer over rows start..start+R-1; their pre-norm outputs."""
        embeds = F.embedding(tokens, self.embedding)[None].to(self.dtype)
        positions = torch.arange(start, start + tokens.shape[0], device=tokens.device)[None]
        return self.draft.step(embeds, hidden, positions, self._attend(start))

    def _attend(self, start: int) -> Attend:
        """Causal attention over the cache, with new rows written from ``start`` on."""

        def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            keys, values = self.cache.write(start, keys, values)
            rows = queries.shape[2]
            if start == 0 and rows > 1:
                keys = keys.repeat_interleave(self._groups, dim=1)
                values = values.repeat_interleave(self._groups, dim=1)
                return F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
            # Query heads that share a key head become rows of one head: the keys are read once.
            packed = queries.reshape(1, keys.shape[1], self._groups * rows, -1)
            mask = None
            if rows > 1:
                seen = torch.ones(rows, start + rows, dtype=torch.bool, device=queries.device)
                mask = seen.tril(start).repeat(self._groups, 1)
            context = F.scaled_dot_product_attention(packed, keys, values, attn_mask=mask)
            return context.reshape(queries.shape)

        return attend
