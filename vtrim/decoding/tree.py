"""The dynamic draft tree of EAGLE-2 and EAGLE-3 (arXiv:2406.16858, arXiv:2503.01840).

Level 0 holds the draft's ``top_k`` tokens behind the sequence. Then, ``depth`` times, the best
``top_k`` nodes of the level made last (its beam) pass the draft and get ``top_k`` children each. A
node is worth its cumulative log-probability under the draft's softmax; the best ``total_token - 1``
of all nodes are proposed. A node at level e has draft position base + e, behind ``base`` committed
rows. Shapes: B sequences, K = top_k, P nodes in the pool, N proposed nodes, d hidden size, k draft
vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from vtrim.decoding.draft_rows import Batch, DraftRows
from vtrim.decoding.draft_size import TreeShape
from vtrim.decoding.protocol import ROOT, Proposal
from vtrim.decoding.sampling import law
from vtrim.errors import OptionError
from vtrim.models.draft import Eagle3Draft


@dataclass
class _Pool:
    """Every node made, level by level; node j is a child of row j // K of ``laws``.

    scores, index: [B, K or K * K] a level, cumulative log-probability and draft id; laws: [B, 1,
    k] behind the sequence, then [B, K, k] behind each beam; beams: [B, K] pool index of its nodes.
    """

    scores: list[Tensor] = field(default_factory=list)
    index: list[Tensor] = field(default_factory=list)
    laws: list[Tensor] = field(default_factory=list)
    beams: list[Tensor] = field(default_factory=list)


class TreeDrafter(DraftRows):
    """Drafts a tree a sequence; all sequences of a call share each pass.

    ``num_draft_tokens`` and a sequence's ``room`` cut the tree's depth. Nothing waits for the
    device while drafting; once the tree is made its parents are read, in one transfer.
    """

    def __init__(self, draft: Eagle3Draft, embedding: Tensor, shape: TreeShape) -> None:
        """embedding: [V, d] the target's input embedding, unscaled.

        Raises:
            OptionError: ``top_k`` exceeds the draft vocabulary.
        """
        size = draft.vocab_ids.shape[0]
        if shape.top_k > size:
            raise OptionError(
                f"tree top_k={shape.top_k} exceeds the {size} tokens of the draft vocabulary. "
                f"Lower top_k to {size} or less."
            )
        super().__init__(draft, embedding)
        self.shape = shape
        self.spare = shape.depth * shape.top_k

    def grow(
        self, batch: Batch, lengths: list[int], *, temperature: float, seed: int
    ) -> list[Proposal]:
        """The tree behind each sequence; the same at every seed, as nothing is drawn."""
        del seed
        levels = [min(length, self.shape.depth + 1) for length in lengths]
        return self._proposals(self._grow(batch, max(levels)), levels, temperature)

    def _grow(self, batch: Batch, levels: int) -> _Pool:
        """The pool of a tree of so many levels."""
        top_k, pool = self.shape.top_k, _Pool()
        best, index, laws = self._children(batch.hidden)
        pool.scores.append(best.flatten(1))
        pool.index.append(index.flatten(1))
        pool.laws.append(laws)
        lines, device = best.shape[0], best.device
        itself = torch.eye(top_k, dtype=torch.bool, device=device).expand(lines, -1, -1)
        nodes = torch.arange(top_k, device=device).expand(lines, -1)
        scores, chosen = pool.scores[0], pool.index[0]
        hidden, seen = batch.hidden.expand(-1, top_k, -1), itself
        for level in range(1, levels):
            pool.beams.append(nodes)
            out = self._forward(batch, self.draft.vocab_ids[chosen], hidden, seen, level)
            best, index, laws = self._children(out)
            pool.scores.append((scores[:, :, None] + best).flatten(1))
            pool.index.append(index.flatten(1))
            pool.laws.append(laws)
            # Stable sorts: where scores tie, the node made first wins on every device.
            order = pool.scores[-1].sort(dim=1, descending=True, stable=True).indices[:, :top_k]
            parent = order // top_k
            nodes = self.shape.nodes(level) + order
            scores, chosen = pool.scores[-1].gather(1, order), pool.index[-1].gather(1, order)
            hidden = out.gather(1, parent[:, :, None].expand(-1, -1, out.shape[2]))
            lineage = seen.gather(1, parent[:, :, None].expand(-1, -1, seen.shape[2]))
            seen = torch.cat((lineage, itself), dim=2)
        return pool

    def _children(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities and draft ids [B, T, K] of each row's children, and its law [B, T, k].

        hidden: [B, T, d] pre-norm.
        """
        laws = self.draft.logits(hidden).float().log_softmax(-1)
        best, index = laws.topk(self.shape.top_k, dim=-1)
        return best, index, laws

    def _forward(
        self, batch: Batch, tokens: Tensor, hidden: Tensor, seen: Tensor, level: int
    ) -> Tensor:
        """The pre-norm outputs [B, K, d] of a beam, the ``level``-th one.

        tokens: [B, K]; hidden: [B, K, d] their parents' outputs; seen: [B, K, level * K] which rows
        of the beams each attends to, beside all committed ones.
        """
        beam = tokens.shape[1]
        first = (level - 1) * beam
        if batch.bases is None or batch.slots is None:
            base = batch.base[0]
            positions = torch.full((1, beam), base + level - 1, device=tokens.device)
            whole = F.pad(seen[0], (base, 0), value=True)
            return self.one(batch.asks[0].slot, base + first, positions, tokens, hidden, whole)
        positions = (batch.bases + (level - 1))[:, None].expand(-1, beam)
        rows = batch.bases[:, None] + first + torch.arange(beam, device=tokens.device)
        end = max(batch.base) + level * beam
        offsets = torch.arange(end, device=tokens.device) - batch.bases[:, None]  # 0: first beam
        places = offsets.clamp(0, seen.shape[2] - 1)[:, None].expand(-1, beam, -1)
        inside = (offsets < seen.shape[2])[:, None] & seen.gather(2, places)
        whole = (offsets < 0)[:, None] | inside
        return self.many(batch.slots, rows, positions, tokens, hidden, whole)

    def _proposals(self, pool: _Pool, levels: list[int], temperature: float) -> list[Proposal]:
        """Each sequence's best nodes, in the order they were made: parents come first."""
        scores, top_k = torch.cat(pool.scores, dim=1), self.shape.top_k
        sizes = [self.shape.nodes(count) if count else 0 for count in levels]
        if min(sizes) < scores.shape[1]:
            ends = torch.tensor(sizes).to(scores.device, non_blocking=True)[:, None]
            made = torch.arange(scores.shape[1], device=scores.device)
            scores = scores.masked_fill(made >= ends, -torch.inf)
        ranked = scores.sort(dim=1, descending=True, stable=True).indices
        kept = ranked[:, : self.shape.total_token - 1].sort(dim=1).values
        tokens = self.draft.vocab_ids[torch.cat(pool.index, dim=1).gather(1, kept)]
        rows = kept // top_k
        beams = torch.cat((torch.full_like(kept[:, :1], ROOT), *pool.beams), dim=1)
        nodes = torch.stack((kept, beams.gather(1, rows))).tolist()
        laws = torch.cat(pool.laws, dim=1)
        proposals = []
        for line, size in enumerate(sizes):
            count = min(size, self.shape.total_token - 1)
            soft = laws[line].index_select(0, rows[line, :count])
            proposals.append(
                Proposal(
                    tokens=tokens[line, :count],
                    log_q=None,
                    log_q_soft=law(soft, temperature) if temperature > 0 else soft,
                    vocab_ids=self.draft.vocab_ids,
                    parents=_renumbered(nodes[0][line][:count], nodes[1][line][:count]),
                )
                if count
                else Proposal.nothing(tokens.device)
            )
        return proposals


def _renumbered(kept: list[int], parents: list[int]) -> tuple[int, ...]:
    """The parents, given by their place in the pool, by their place among the kept nodes."""
    place = {ROOT: ROOT} | {node: index for index, node in enumerate(kept)}
    return tuple(place[parent] for parent in parents)
