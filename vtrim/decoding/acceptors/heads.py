"""The K dropout heads at one position: arg-maxes, centroid, and how far apart their laws lie.

Shapes: K heads, V target vocabulary, k draft vocabulary. One position at a time keeps the working
set at a few [K, V] blocks, and a chain that ends early costs no more.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from torch import Tensor

from vtrim.decoding.acceptors.divergence import LOG_ZERO, js, js_trimmed


class Heads:
    """Views of the heads' logits [K, V]; each is computed when first asked for.

    The laws have the temperature of the draft's own: 1 when decoding greedily.
    """

    def __init__(self, logits: Tensor, temperature: float) -> None:
        self._logits = logits.float()  # arg-max over bf16 is slow on a CPU
        self._temperature = temperature or 1.0

    @cached_property
    def best(self) -> list[int]:
        """[K] arg-max of each head."""
        best: list[int] = self._logits.argmax(-1).tolist()
        return best

    def majority(self) -> int | None:
        """The most frequent arg-max; None when several share the most votes."""
        (token, votes), *others = Counter(self.best).most_common(2)
        return None if others and others[0][1] == votes else token

    @cached_property
    def _scaled(self) -> Tensor:
        """[K, V] logits over temperature, largest 0 in each head, bounded below.

        The shift leaves every law and the centroid as they are; with the bound no mean or
        difference can overflow to a row of nothing but -inf.
        """
        shifted = self._logits - self._logits.amax(-1, keepdim=True)
        if self._temperature != 1.0:
            shifted /= self._temperature
        return shifted.clamp_(min=LOG_ZERO)

    @cached_property
    def log_centroid(self) -> Tensor:
        """[V] log-probabilities of the centroid: softmax of the mean logits."""
        return self._scaled.mean(0).log_softmax(-1)

    def radius(self) -> float:
        """JS of the farthest head to the centroid [nats]."""
        return float(js(self._scaled.log_softmax(-1), self.log_centroid).amax())

    def distance(self, log_q: Tensor, vocab_ids: Tensor) -> float:
        """JS of the draft's law to the centroid [nats]. log_q: [k]; vocab_ids: [k] target ids."""
        return float(js_trimmed(log_q, self.log_centroid, vocab_ids))
