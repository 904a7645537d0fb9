"""The K dropout heads at one position: arg-maxes, centroid, and how far apart their laws lie.

Shapes: R positions, K heads, V target vocabulary, k draft vocabulary. On a CPU each position is
measured when it is judged: its blocks of [K, V] stay in the cache, and a chain that ends early
costs no more. A device measures all positions together and is asked once for
arg-maxes and once for laws.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from vtrim.decoding.acceptors.divergence import js, js_trimmed
from vtrim.decoding.sampling import arg_max

_FAR = -1e30  # log 0 where logits are averaged: a finite floor, so that no mean is of -inf alone


def log_laws(logits: Tensor, temperature: float) -> Tensor:
    """[..., V] fp32 log-probabilities, floored far below what exp can show. logits: [..., V]."""
    wide = logits.float()
    if temperature != 1.0:
        # The largest logit goes to 0 first, so that a small temperature cannot overflow.
        wide = (wide - wide.amax(-1, keepdim=True)) / temperature
    return wide.log_softmax(-1).clamp_(min=_FAR)


def log_centroid(laws: Tensor) -> Tensor:
    """[..., V] log-probabilities of the centroid, softmax of the mean logits. laws: [..., K, V].

    Log-probabilities are the logits less one number a head, which the softmax forgets.
    """
    return laws.mean(-2).log_softmax(-1)


def majority(best: Sequence[int]) -> int | None:
    """The most frequent arg-max; None when several share the most votes."""
    (token, votes), *others = Counter(best).most_common(2)
    return None if others and others[0][1] == votes else token


class Heads:
    """Views of the heads' logits [K, V] at one position; each is computed when first asked for.

    temperature: that of the draft's own law, so 1 when decoding greedily. The laws are never
    filtered by top_k or top_p, as the draft's own is not. log_q: [k] the draft's law.
    """

    def __init__(
        self, logits: Tensor, temperature: float, log_q: Tensor, vocab_ids: Tensor
    ) -> None:
        self.logits = logits
        self.temperature = temperature or 1.0
        self.log_q = log_q
        self.vocab_ids = vocab_ids

    @cached_property
    def best(self) -> list[int]:
        """[K] arg-max of each head."""
        best: list[int] = arg_max(self.logits).tolist()
        return best

    @cached_property
    def log_centroid(self) -> Tensor:
        """[V] log-probabilities of the centroid."""
        return self._compare()[0]

    @cached_property
    def radii(self) -> list[float]:
        """[K] JS of each head to the centroid [nats]."""
        return self._compare()[1]

    @cached_property
    def distance(self) -> float:
        """JS of the draft's law to the centroid [nats]."""
        return float(js_trimmed(self.log_q, self.log_centroid, self.vocab_ids))

    def _compare(self) -> tuple[Tensor, list[float]]:
        """Centroid and radii, from a [K, V] copy in fp32 that is given back at once.

        Its memory then serves the next position while it is still in the cache.
        """
        laws = log_laws(self.logits, self.temperature)
        centroid = log_centroid(laws)
        radii: list[float] = js(laws, centroid).tolist()
        vars(self).update(log_centroid=centroid, radii=radii)  # where cached_property looks
        return centroid, radii


def masked_states(hidden: Tensor, masks: Tensor, p_drop: float) -> Tensor:
    """[R, K, d] states with units dropped and the others scaled (arXiv:2603.03333, eqs. 1-2).

    hidden: [R, d]; masks: [R, K, d], True where a unit is kept. Masks are made on the host, K * d
    bits a position; one copy takes those of all positions to a device.
    """
    scaled = (hidden.float() / (1 - p_drop)).to(hidden.dtype)
    return scaled[:, None] * masks.to(hidden.device)


def compare_together(heads: Sequence[Heads], logits: Tensor) -> None:
    """Fills what the JS rule compares at several positions, with one transfer from a device.

    logits: [R, K, V] of all of them.
    """
    laws = log_laws(logits, heads[0].temperature)
    centroids = log_centroid(laws)
    log_q = torch.stack([one.log_q for one in heads])
    distances = js_trimmed(log_q, centroids, heads[0].vocab_ids)
    both = torch.cat((js(laws, centroids[:, None]), distances[:, None]), -1).tolist()
    for one, centroid, (*radii, distance) in zip(heads, centroids, both, strict=True):
        vars(one).update(log_centroid=centroid, radii=radii, distance=distance)
