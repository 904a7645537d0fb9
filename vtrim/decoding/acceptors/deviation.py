"""How far the token that DropMatch emits at a position strays from the target's own law there."""

from __future__ import annotations

import torch
from torch import Tensor

from vtrim.decoding.acceptors.heads import majority
from vtrim.decoding.acceptors.judging import Judging
from vtrim.decoding.acceptors.rule import Spot


def total_variation(judging: Judging, spot: Spot, row: int, kept: int | None) -> float:
    """Total variation between the law of the emitted token and the target's, 0 to 1.

    Both given the text so far and the masks drawn. Averaged over positions it estimates, from
    above (total variation is convex), how far the rule's law with its masks averaged out strays.
    kept: the node that stays, None after a rejection. At temperature 0 it is whether the emitted
    token is another than the target's arg-max.
    """
    greedy = judging.view.temperature == 0
    if greedy:
        token = judging.correct(spot, row) if kept is None else judging.proposal.ids[kept]
        return float(token != judging.clean(row))
    target = spot.p / spot.p.sum()
    return float((emitted_law(judging, spot, row, kept) - target).abs().sum() / 2)


def emitted_law(judging: Judging, spot: Spot, row: int, kept: int | None) -> Tensor:
    """[V] probabilities of the emitted token given the masks, above temperature 0.

    Of a token sampled from q it is q where the rule keeps, and the correction for the rest; of
    tokens that were not sampled (one-hot proposals, trees) the one that stays, or the correction.
    """
    proposal = judging.proposal
    weights = judging.correction_weights(spot, row)
    correction = weights / weights.sum()
    if proposal.log_q is None or len(spot.nodes) > 1:
        if kept is None:
            return correction
        return torch.zeros_like(correction).index_fill_(0, proposal.tokens[kept], 1.0)
    q = proposal.log_q[spot.nodes[0]].exp() * keeps(judging, spot, row)
    return ((1 - q.sum()).clamp(min=0) * correction).index_add(0, proposal.vocab_ids, q)


def keeps(judging: Judging, spot: Spot, row: int) -> Tensor:
    """[k] bool: which draft ids the rule would keep at a row, had they been drafted."""
    rules, heads, ids = judging.rules, judging.heads(row), judging.proposal.vocab_ids
    if rules.criterion in ("full", "js") and judging.near(row):
        kept = torch.ones_like(ids, dtype=torch.bool)
    else:
        most = majority(heads.best)
        chosen = {
            "naive": heads.best,
            "js": [],
            "majority": [] if most is None else [most],
            "full": [] if most is None else [most],
        }[rules.criterion]
        kept = torch.isin(ids, torch.tensor(chosen, dtype=ids.dtype, device=ids.device))
    if rules.min_centroid_prob > 0:
        kept &= heads.log_centroid[ids].exp() >= rules.min_centroid_prob
    if rules.accept_clean_argmax:
        kept |= ids == judging.clean(row)
    if spot.filtered:
        kept &= spot.p[ids] > 0
    return kept
