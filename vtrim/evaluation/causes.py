"""Why drafted tokens were rejected, and how much of the text a draft could have written at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vtrim.decoding.generation import Generation, Rejection
from vtrim.vocab import DraftVocab

OUT_OF_VOCABULARY, WRONG_TOKEN, SAMPLING = "out_of_vocabulary", "wrong_token", "sampling"
CAUSES = (OUT_OF_VOCABULARY, WRONG_TOKEN, SAMPLING)
"""By the round's first rejected position, a cause each.

out_of_vocabulary: the target's own token in their place is none that the draft can write. This is
the whole price of trimming: of exact acceptance's chance to reject, sum_v (p - q)_+, the part that
lies outside the draft vocabulary. Of the others: sampling: the target's likeliest token was
drafted, and a draw (or a lossy rule's noise) rejected it. wrong_token: it was not drafted.
"""
_MOST_MISSING = 20


@dataclass(frozen=True)
class Lookup:
    """Which ids a draft can write; ``None`` in place of a vocabulary: all."""

    vocab: DraftVocab | None

    def has(self, token: int) -> bool:
        """Whether the draft can write a token."""
        if self.vocab is None:
            return True
        ids = self.vocab.ids
        place = int(np.searchsorted(ids, token))
        return place < len(ids) and int(ids[place]) == token

    def cause(self, rejection: Rejection) -> str:
        """Why a round's tokens were rejected."""
        if not self.has(rejection.token):
            return OUT_OF_VOCABULARY
        return SAMPLING if rejection.likeliest else WRONG_TOKEN

    def causes(self, generations: Sequence[Generation]) -> dict[str, int]:
        """Rejected rounds by cause."""
        found = Counter(self.cause(one) for g in generations for one in g.rejections)
        return {cause: found[cause] for cause in CAUSES}


def rejections(generations: Sequence[Generation], vocab: DraftVocab | None) -> dict[str, Any]:
    """The fields that a result shows for a rule.

    rejected_rounds: rounds that ended in a rejection; the others drafted nothing, or all that they
    drafted was kept. rejections: of them, by cause. rejections_by_position: the same by the number
    of drafted tokens kept before.
    """
    lookup = Lookup(vocab)
    places = [(one.position, lookup.cause(one)) for g in generations for one in g.rejections]
    counted = Counter(places)
    deepest = max((position for position, _ in places), default=-1)
    return {
        "rejected_rounds": len(places),
        "rejections": lookup.causes(generations),
        "rejections_by_position": [
            {cause: counted[position, cause] for cause in CAUSES} for position in range(deepest + 1)
        ],
    }


def coverage(generations: Sequence[Generation], vocab: DraftVocab | None) -> float | None:
    """Share of the replies' tokens that the draft can write; None without a vocabulary or text."""
    if vocab is None:
        return None
    tokens = np.array(list(_tokens(generations)), dtype=np.int64)
    return float(np.isin(tokens, vocab.ids).mean()) if tokens.size else None


def missing(generations: Sequence[Generation], vocab: DraftVocab | None) -> list[dict[str, int]]:
    """The tokens of the replies that the draft cannot write: ``id`` and ``count``, at most 20."""
    lookup = Lookup(vocab)
    counted = Counter(_tokens(generations))
    gone = [(-count, token) for token, count in counted.items() if not lookup.has(token)]
    return [{"id": token, "count": -count} for count, token in sorted(gone)[:_MOST_MISSING]]


def _tokens(generations: Sequence[Generation]) -> Iterator[int]:
    return (token for generation in generations for token in generation.tokens)
